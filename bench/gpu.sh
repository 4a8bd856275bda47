#!/usr/bin/env bash
# Everything that needs a GPU, in one command of less than 9 minutes (--quick: 3), the most important first:
# correctness of every stitched kernel, memory and race checks, the constants of the cost model and of the launchers,
# then the suites of benchmarks and their report. Each step writes its results as it goes.
#
#   bench/gpu.sh [--quick] [--device cuda|cpu] [--out FOLDER]     (PYTHON=python3 chooses the interpreter)
#
# The exit status is 1 where something failed or is wrong, and 10 where nothing is, but not all was done in the time.
#
# Nothing is fetched. The interpreter needs jax 0.10 or 0.11 with its CUDA plugin, NVRTC (cuda-bindings or the wheel
# nvidia-cuda-nvrtc), numpy, ml_dtypes, networkx, scipy, rich, platformdirs, flax, optax and pytest; pytest-xdist makes
# the tests faster, matplotlib draws the report, torch and compute-sanitizer are used where they are. A C++ compiler is
# needed for the launcher check alone. What is missing is named at the start: carry it as wheels in .whl/ beside this
# checkout's README (pip download --no-deps --only-binary=:all: -d .whl platformdirs), and they are put on the path.
set -uo pipefail
cd "$(dirname "$0")/.."

quick=0 device=cuda out=bench/results/gpu
while (($#)); do
  case $1 in
    --quick) quick=1 ;;
    --device) device=${2:?--device needs cuda or cpu}; shift ;;
    --out) out=${2:?--out needs a folder}; shift ;;
    *) sed -n '2,16s/^# \{0,1\}//p' "$0"; exit 2 ;;
  esac
  shift
done
case $device in cuda | cpu) ;; *) echo "--device is cuda or cpu, not $device" >&2; exit 2 ;; esac

python=${PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || echo python3)}
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if compgen -G '.whl/*.whl' >/dev/null; then
  "$python" -m pip install --quiet --no-index --no-deps --no-compile --target "$work/site" .whl/*.whl || exit 1
  export PYTHONPATH="$work/site${PYTHONPATH:+:$PYTHONPATH}"
fi
export JAX_STITCH_CACHE_DIR="$work/cache" JAX_SKIP_CUDA_CONSTRAINTS_CHECK=1 XLA_PYTHON_CLIENT_PREALLOCATE=false
export PYTHONUNBUFFERED=1 BENCH_DEVICE=$device
[ "$device" = cuda ] && export JAX_PLATFORMS=cuda,cpu || export JAX_PLATFORMS=cpu

"$python" - "$device" <<'PYTHON' || exit 1
import importlib.util, sys
needed = "jax jaxlib numpy ml_dtypes networkx scipy rich platformdirs flax optax pytest".split()
missing = [name for name in needed if importlib.util.find_spec(name) is None]
if missing:
    sys.exit(f"missing: {', '.join(missing)}; see the head of bench/gpu.sh for how to carry wheels")
import jax
backend = {"cuda": "gpu", "cpu": "cpu"}[sys.argv[1]]
if jax.default_backend() != backend:
    sys.exit(f"JAX found no {sys.argv[1]} device here, only {jax.default_backend()}")
print(jax.devices(), "jax", jax.__version__, "python", sys.version.split()[0])
PYTHON

end=$((SECONDS + (quick ? 170 : 520)))
failed=() cut=()
# step NAME SECONDS COMMAND...: runs it for at most SECONDS, and no longer than is left of the whole.
step() {
  local name=$1 limit=$2 left=$((end - SECONDS))
  shift 2
  ((limit < left)) || limit=$left
  if ((limit < 5)); then
    echo "== $name: no time left"
    cut+=("$name (no time left)")
    return
  fi
  echo "== $name (at most $limit s)"
  timeout --signal=INT --kill-after=10 "$limit" "$@" 2>&1 | tee "$out/$name.log"
  local status=${PIPESTATUS[0]}
  case $status in
    0) ;;
    10) cut+=("$name (not all of it in its time)") ;;
    124 | 137)
      if grep -qE 'FAILED|WRONG|[0-9]+ failed' "$out/$name.log"; then
        failed+=("$name (and ended after $limit s)")
      else
        cut+=("$name (ended after $limit s)")
      fi
      ;;
    *) failed+=("$name (exit status $status)") ;;
  esac
}
suite() {  # suite NAME SECONDS OPTIONS...
  local name=$1 seconds=$2
  shift 2
  step "$name" "$((seconds + 65))" "$python" -m bench run --suite "$name" --device "$device" --no-cold \
    --seconds 1 --limit 60 --budget "$seconds" --json "$out/$name.json" "$@"
}

[ "$device" = cuda ] && step machine 10 nvidia-smi
workers=()
"$python" -c 'import xdist' 2>/dev/null && workers=(-n "$(($(nproc) < 8 ? $(nproc) : 8))")
if ((quick)); then
  step tests 60 "$python" -m pytest -q -p no:cacheprovider "${workers[@]}" tests/gpu -k 'kernels and float32 and uneven'
elif [ "$device" = cuda ]; then
  step tests 150 "$python" -m pytest -q -p no:cacheprovider "${workers[@]}" tests/gpu
else  # the kernels' CPU side has its own tests: enough to run what a GPU would
  step tests 150 "$python" -m pytest -q -p no:cacheprovider "${workers[@]}" tests/gpu -k 'kernels and uneven and float32'
fi
if [ "$device" = cuda ] && ((!quick)) && command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck; do
    XLA_PYTHON_CLIENT_ALLOCATOR=platform step "$tool" 40 \
      compute-sanitizer --tool "$tool" --error-exitcode 9 "$python" -m bench.sanitized
  done
fi
step constants 40 "$python" -m bench device --device "$device" --json "$out/constants.json"
small=()
[ "$device" = cpu ] && small=(--small)
if ((quick)); then
  suite micro 40 "${small[@]}" --no-peers
  suite optimizers 10 "${small[@]}" --no-peers
  suite loops 20 "${small[@]}" --no-peers
else
  suite micro 90 "${small[@]}"
  suite optimizers 30 "${small[@]}"
  suite loops 50 "${small[@]}"
  suite models 80 "${small[@]}"
  suite scaling 40 "${small[@]}" --no-peers
fi
if ((!quick)); then
  step measure 60 "$python" -m jax_stitch measure
  step evaluators 60 "$python" -m bench evaluators --device "$device" --suite micro --sizes small --seconds 0.02 \
    --budget 40 --out "$out"
fi
if "$python" -c 'import matplotlib' 2>/dev/null; then
  results=()
  for name in micro optimizers loops models scaling; do
    [ -e "$out/$name.json" ] && results+=("$out/$name.json")
  done
  end=$((SECONDS + 30))
  ((${#results[@]} == 0)) || step report 30 "$python" -m bench report "${results[@]}" --out "$out/report"
fi
((${#cut[@]} == 0)) || printf 'not all done: %s\n' "${cut[@]}"
((${#failed[@]} == 0)) || { printf 'not well: %s\n' "${failed[@]}"; exit 1; }
echo "all that was done is well; results in $out"
((${#cut[@]} == 0)) || exit 10
