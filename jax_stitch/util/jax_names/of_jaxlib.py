"""The names of jaxlib's that are used, and those of both without which only something particular is lost."""

from __future__ import annotations

from jax_stitch.util.jax_names.forms import Has, IsClass, Takes
from jax_stitch.util.jax_names.name import DESCRIBED, HLO_FILES, Name, module_name

_IR = "jaxlib.mlir.ir"

_JAXLIB = (
    module_name("ir", _IR, "MLIR"),
    *(
        Name(f"ir.{name}", _IR, name, what, IsClass())
        for name, what in {
            "ArrayAttr": "an attribute: a list",
            "Attribute": "an attribute",
            "Block": "a block of operations",
            "BlockArgument": "an argument of one",
            "BoolAttr": "an attribute: a truth value",
            "DenseIntElementsAttr": "an attribute: an array of integers",
            "DictAttr": "an attribute: a dictionary",
            "FlatSymbolRefAttr": "an attribute: a function's name",
            "IndexType": "the type of indices",
            "InsertionPoint": "where operations are put",
            "IntegerAttr": "an attribute: a number",
            "IntegerType": "types of integers",
            "Location": "a place in a source file",
            "Module": "a program",
            "Operation": "an operation",
            "RankedTensorType": "the type of an array",
            "StringAttr": "an attribute: text",
            "Type": "a type",
            "Value": "a value",
            "WalkResult": "whether to go on through a program",
        }.items()
    ),
    Name("ir.DenseI64ArrayAttr", _IR, "DenseI64ArrayAttr", "an attribute: numbers", IsClass(), HLO_FILES),
    module_name("func", "jaxlib.mlir.dialects.func", "MLIR's functions"),
    Name("func.CallOp", "jaxlib.mlir.dialects.func", "CallOp", "calls one", Takes(3)),
    module_name("stablehlo", "jaxlib.mlir.dialects.stablehlo", "StableHLO"),
    Name("stablehlo.after_all", "jaxlib.mlir.dialects.stablehlo", "after_all", "a token after others", Takes(1)),
    Name(
        "stablehlo.BroadcastInDimOp",
        "jaxlib.mlir.dialects.stablehlo",
        "BroadcastInDimOp",
        "a broadcast",
        Takes(3),
        HLO_FILES,
    ),
    module_name("sdy", "jaxlib.mlir.dialects.sdy", "Shardy: how arrays lie on several devices"),
    *(
        Name(f"sdy.{name}", "jaxlib.mlir.dialects.sdy", name, "a word of Shardy", IsClass())
        for name in (
            "AxisRefAttr",
            "DimensionShardingAttr",
            "MeshAttr",
            "MeshAxisAttr",
            "TensorShardingAttr",
            "TensorShardingPerValueAttr",
        )
    ),
    Name(
        "lapack_functions",
        "jaxlib.lapack",
        "registrations",
        "functions for custom calls: one stands in for those that a program calls and that are not here",
        Takes(),
        HLO_FILES,
    ),
    module_name("hlo", "jaxlib._hlo", "XLA's HLO"),
    Name(
        "hlo.HloPrintOptions",
        "jaxlib._hlo",
        "HloPrintOptions",
        "how HLO is written as text",
        Takes(0, attributes=("print_large_constants",)),
    ),
    Name(
        "hlo.HloModule",
        "jaxlib._hlo",
        "HloModule",
        "a program in HLO",
        Has(("from_serialized_hlo_module_proto",)),
        HLO_FILES,
    ),
    Name("hlo.hlo_module_from_text", "jaxlib._hlo", "hlo_module_from_text", "reads HLO text", Takes(1), HLO_FILES),
    Name(
        "converters",
        "jaxlib._jax",
        "mlir",
        "between HLO and StableHLO",
        Has(("deserialize_portable_artifact", "hlo_to_stablehlo", "mlir_module_to_xla_computation")),
        HLO_FILES,
    ),
)

_FEATURES = (
    module_name("xla_client", "jaxlib.xla_client", "XLA's compiler without JAX", DESCRIBED),
    Name(
        "xla_client.CompileOptions",
        "jaxlib.xla_client",
        "CompileOptions",
        "how it compiles",
        Takes(0, attributes=("num_partitions", "num_replicas", "env_option_overrides", "executable_build_options")),
        DESCRIBED,
    ),
    Name(
        "xla_client.DeviceAssignment",
        "jaxlib.xla_client",
        "DeviceAssignment",
        "for which devices",
        Has(("create",)),
        DESCRIBED,
    ),
    Name("xla_client.DeviceList", "jaxlib.xla_client", "DeviceList", "on which devices", Takes(1), DESCRIBED),
    Name(
        "get_topology_desc",
        "jax.experimental.topologies",
        "get_topology_desc",
        "devices that are only described",
        Takes(0, ("platform", "topology_name", "target_config", "topology")),
        DESCRIBED,
    ),
    Name(
        "distributed_state",
        "jax._src.distributed",
        "global_state",
        "the store that JAX's processes share",
        Has(("client",)),
        "functions over several processes stay jax.jit",
        spared=True,
    ),
    Name(
        "backends_are_initialized",
        "jax._src.xla_bridge",
        "backends_are_initialized",
        "whether JAX has been used",
        Takes(),
        "a process that was forked after JAX was used is not warned",
        spared=True,
    ),
    Name(
        "filtering",
        "jax._src.traceback_util",
        "api_boundary",
        "has what a function raises shown without the frames of files that are left out",
        Takes(1),
        "tracebacks of functions that JAX's dispatch calls show JAX's frames and ours",
        spared=True,
    ),
    Name(
        "hide_in_tracebacks",
        "jax._src.traceback_util",
        "register_exclusion",
        "leaves a file out of tracebacks",
        Takes(1),
        "tracebacks show our frames",
        spared=True,
    ),
    Name(
        "hide_in_sources",
        "jax.extend.source_info_util",
        "register_exclusion",
        "the same for source positions",
        Takes(1),
        "operations seem to come from our files",
        spared=True,
    ),
)

OF_JAXLIB: tuple[Name, ...] = (*_JAXLIB, *_FEATURES)
