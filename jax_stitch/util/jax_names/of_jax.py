"""The names of jax's that are not promised: lowering, rules, traced functions, dispatch."""

from __future__ import annotations

from jax_stitch.util.jax_names.forms import Has, IsA, IsClass, IsModule, Makes, Registry, Takes
from jax_stitch.util.jax_names.name import APART, HLO_FILES, JET, Name, module_name

_MLIR, _PARTIAL, _CORE = "jax.interpreters.mlir", "jax.interpreters.partial_eval", "jax.extend.core"

_CONTEXTS = (
    Name(
        "mlir.LoweringRuleContext",
        _MLIR,
        "LoweringRuleContext",
        "where an operation is lowered: the first argument of our lowering rules",
        Has(("module_context", "avals_in", "avals_out", "tokens_in", "tokens_out", "replace", "set_tokens_out")),
    ),
    Name(
        "mlir.ModuleContext",
        _MLIR,
        "ModuleContext",
        "the module that is being lowered",
        Has(
            (
                *("platforms", "axis_context", "host_callbacks", "lowering_parameters", "module", "symbol_table"),
                *("add_host_callback", "add_keepalive"),
            )
        ),
    ),
    Name("mlir.SPMDAxisContext", _MLIR, "SPMDAxisContext", "the inside of a shard_map", Has(("manual_axes",))),
    Name(
        "mlir.TokenSet",
        _MLIR,
        "TokenSet",
        "the tokens by which effects keep their order",
        Takes(1, attributes=("effects", "get", "items", "update_tokens")),
    ),
)

_LOWERING = (
    module_name("mlir", _MLIR, "lowering to StableHLO"),
    Name(
        "mlir.register_lowering",
        _MLIR,
        "register_lowering",
        "gives an operation its lowering, which is called (context, *values, **parameters)",
        Takes(2, ("cacheable",)),
    ),
    Name("mlir.lower_fun", _MLIR, "lower_fun", "lowers what a function traces to", Takes(1, ("multiple_results",))),
    Name("mlir.make_ir_context", _MLIR, "make_ir_context", "a context of MLIR with JAX's dialects", Takes()),
    Name(
        "mlir.merge_mlir_modules",
        _MLIR,
        "merge_mlir_modules",
        "puts one module into another",
        Takes(3, ("dst_symtab",)),
    ),
    Name("mlir.module_to_bytecode", _MLIR, "module_to_bytecode", "a module as bytes", Takes(1), HLO_FILES),
    Name("mlir.token_type", _MLIR, "token_type", "the type of tokens", Takes()),
    Name("mlir.dtype_to_ir_type", _MLIR, "dtype_to_ir_type", "an element type in MLIR", Takes(1)),
    Name("mlir.ir_tree_registry", _MLIR, "ir_tree_registry", "trees of MLIR values", Has(("flatten",))),
    Name("mlir.ir", _MLIR, "ir", "MLIR itself, as JAX hands it on", IsModule()),
    *_CONTEXTS,
)

_RULES = (
    module_name("ad", "jax.interpreters.ad", "derivatives"),
    Name("ad.Zero", "jax.interpreters.ad", "Zero", "a tangent that is known to be zero", Takes(1)),
    Name(
        "ad.is_undefined_primal",
        "jax.interpreters.ad",
        "is_undefined_primal",
        "whether an operand is one that a linear operation is transposed in",
        Takes(1),
    ),
    Name(
        "ad.primitive_jvps",
        "jax.interpreters.ad",
        "primitive_jvps",
        "rules of derivatives, called (primals, tangents, **parameters)",
        Registry(),
    ),
    Name(
        "ad.primitive_transposes",
        "jax.interpreters.ad",
        "primitive_transposes",
        "rules of transposition, called (cotangents, *operands, **parameters)",
        Registry(),
    ),
    module_name("batching", "jax.interpreters.batching", "vmap"),
    Name(
        "batching.fancy_primitive_batchers",
        "jax.interpreters.batching",
        "fancy_primitive_batchers",
        "rules of vmap, called (axis data, operands, axes, **parameters)",
        Registry(),
    ),
    module_name("pe", _PARTIAL, "partial evaluation"),
    Name(
        "pe.dce_jaxpr_consts",
        _PARTIAL,
        "dce_jaxpr_consts",
        "leaves out what some results do not need; gives the rest, and which constants and arguments that needs",
        Takes(2),
    ),
    Name(
        "pe.dce_rules",
        _PARTIAL,
        "dce_rules",
        "rules of dead code, called (used results, equation) up to 0.11, and from 0.12 on (used results, references "
        "read later, equation)",
        Registry(),
    ),
    Name(
        "pe.partial_eval_jaxpr_custom_rules",
        _PARTIAL,
        "partial_eval_jaxpr_custom_rules",
        "rules of jax.checkpoint's policies, called (saveable, unknown, instantiated, equation)",
        Registry(),
    ),
    Name(
        "closed_call_partial_eval_custom_rule",
        "jax._src.interpreters.partial_eval",
        "closed_call_partial_eval_custom_rule",
        "JAX's own such rule for calls, with the parameter that the jaxpr is in and what changes the others",
        Takes(6),
    ),
    Name(
        "error_checks",
        "jax._src.checkify",
        "error_checks",
        "rules of checkify, called (error, enabled errors, *operands, **parameters)",
        Registry(),
    ),
    Name(
        "set_xla_metadata",
        "jax.experimental.xla_metadata",
        "set_xla_metadata",
        "tells XLA what not to inline",
        Takes(0, ("inlineable",)),
        APART,
        spared=True,
    ),
    Name(
        "jet",
        "jax.experimental.jet",
        "jet",
        "Taylor series of a function",
        Takes(3, ("factorial_scaled",)),
        JET,
        spared=True,
    ),
    Name(
        "jet_rules",
        "jax.experimental.jet",
        "jet_rules",
        "rules of jet, called (primals, series, **parameters)",
        Registry(),
        JET,
        spared=True,
    ),
)

_JAXPRS = (
    Name(
        "ClosedJaxpr",
        _CORE,
        "ClosedJaxpr",
        "a traced function; from 0.12 on Jaxpr by another name",
        Takes(2, attributes=("in_avals", "out_avals", "effects", "consts", "jaxpr")),
    ),
    Name("Jaxpr", _CORE, "Jaxpr", "its operations", Has(("constvars", "invars", "outvars", "eqns"))),
    Name(
        "JaxprEqn",
        _CORE,
        "JaxprEqn",
        "one of them",
        Has(("invars", "outvars", "primitive", "params", "effects", "source_info", "replace")),
    ),
    Name("Var", _CORE, "Var", "a variable in them", IsClass()),
    Name("Literal", _CORE, "Literal", "a constant in them", IsClass()),
    Name(
        "Primitive",
        _CORE,
        "Primitive",
        "an operation of JAX",
        Takes(1, attributes=("bind", "def_impl", "def_abstract_eval", "def_effectful_abstract_eval")),
    ),
    Name("jaxpr_as_fun", _CORE, "jaxpr_as_fun", "a traced function as a function", Takes(1)),
    Name("jaxprs_in_params", _CORE, "jaxprs_in_params", "the functions inside an operation", Takes(1)),
    Name(
        "convert_element_type_p",
        "jax.extend.core.primitives",
        "convert_element_type_p",
        "the operation of astype",
        IsA("Primitive"),
    ),
    Name("summarize", "jax.extend.source_info_util", "summarize", "the user's line of an operation", Takes(1)),
)

_DISPATCH = (
    Name(
        "jit",
        "jax",
        "jit",
        "functions under jax.jit, of which ours are made",
        Makes(("_jit_info", "_fun", "_cache_miss", "_clear_cache")),
    ),
    Name(
        "pjit",
        "jaxlib._jax",
        "pjit",
        "a function that JAX's dispatch calls, of: name, function, what is asked "
        "for new types, static arguments by number and by name, cache key, trees, how arrays are split, cache",
        Takes(9),
    ),
    Name("PjitFunction", "jaxlib._jax", "PjitFunction", "the type of such functions", IsClass()),
    Name("PjitFunctionCache", "jaxlib._jax", "PjitFunctionCache", "their programs", Takes(0, ("capacity",))),
    Name(
        "dispatch_registry",
        "jax._src.tree_util",
        "dispatch_registry",
        "trees as dispatch sees them",
        IsA("PyTreeRegistry"),
    ),
    Name("cc_shard_arg", "jax._src.interpreters.pxla", "cc_shard_arg", "puts an argument where it has to be", Takes(3)),
    Name("trace_state_strong_ref", "jax._src.core", "trace_state_strong_ref", "what a thread traces", Has(("value",))),
    Name("eval_trace", "jax._src.core", "eval_trace", "what that is where nothing is traced", IsA("EvalTrace")),
    Name("config_ext", "jax._src.config", "config_ext", "the options that a thread can set for itself", IsModule()),
    Name(
        "config_ext.Config",
        "jax._src.config.config_ext",
        "Config",
        "one of these options",
        Has(("get_local", "set_local", "swap_local")),
    ),
    Name("config_ext.unset", "jax._src.config.config_ext", "unset", "the value of one that is not set", IsA("object")),
    Name("Lowered", "jax.stages", "Lowered", "a lowered program", Has(("_lowering", "compiler_ir", "in_avals"))),
    Name(
        "MeshComputation",
        "jax._src.interpreters.pxla",
        "MeshComputation",
        "what is behind it: constants that became arguments, what it was compiled to, Python functions that it calls",
        Takes(
            0,
            (
                "const_args",
                "compiler_options_kvs",
                "host_callbacks",
                "name",
                "hlo",
                "donated_invars",
                "platforms",
                "device_assignment",
            ),
        ),
    ),
)

OF_JAX: tuple[Name, ...] = (*_LOWERING, *_RULES, *_JAXPRS, *_DISPATCH)
