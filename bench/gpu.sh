#!/usr/bin/env bash
# Everything that needs a GPU, in one command of at most 9 minutes (--quick: 3), the most valuable first: one tiny
# kernel; each composition; correctness of all workloads; times beside jax.jit; bandwidth in per cent of a copy; the
# evaluator's calibration; autotune. What hangs is named and passed by. One file comes back: a tar of all output.
#
#   bench/gpu.sh [--quick] [--device cuda|cpu] [--budget SECONDS] [--out FILE.tar.gz]
#   bench/gpu.sh --prepare [PACKAGE...]       on a machine with a network: fetches into .whl what the other may lack
#
# PYTHON=python3 chooses the interpreter. It needs jax 0.10 or 0.11 with its CUDA plugin and NVRTC (cuda-bindings or
# the wheel nvidia-cuda-nvrtc). Of the rest, what is missing is taken from wheels in .whl, which travels with the
# checkout, or from a network, or it is named. platformdirs is not needed, nor is a network.
#
# The exit status is 1 where something is wrong or nothing was done, and 10 where nothing is, but not all was done.
set -uo pipefail
start=$SECONDS
cd "$(dirname "$0")/.."

quick=() device=cuda out=build/gpu.tar.gz budget=()
python=${PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || echo python3)}
while (($#)); do
  case $1 in
    --prepare) shift; exec "$python" bench/gpu/wheels.py --prepare "$@" ;;
    --quick) quick=(--quick) ;;
    --device) device=${2:?--device needs cuda or cpu}; shift ;;
    --budget) budget=(--budget "${2:?--budget needs seconds}"); shift ;;
    --out) out=${2:?--out needs a file}; shift ;;
    *) sed -n '2,15s/^# \{0,1\}//p' "$0"; exit 2 ;;
  esac
  shift
done
case $device in cuda | cpu) ;; *) echo "--device is cuda or cpu, not $device" >&2; exit 2 ;; esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" bench/gpu/wheels.py --site "$work/site" || exit 1
export PYTHONPATH="$PWD:$work/site${PYTHONPATH:+:$PYTHONPATH}"
export JAX_STITCH_CACHE_DIR="$work/cache" JAX_SKIP_CUDA_CONSTRAINTS_CHECK=1 XLA_PYTHON_CLIENT_PREALLOCATE=false
export PYTHONUNBUFFERED=1 BENCH_DEVICE=$device
unset PYTHONDONTWRITEBYTECODE
[ "$device" = cuda ] && export JAX_PLATFORMS=cuda,cpu || export JAX_PLATFORMS=cpu
"$python" -m bench.gpu.steps --device "$device" --work "$work/found" --out "$out" --spent $((SECONDS - start)) \
  "${quick[@]}" "${budget[@]}"
