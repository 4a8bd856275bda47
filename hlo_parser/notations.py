"""Every attribute by name: how its value is read and how it is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import write_attribute as write
from .opcodes import words
from .reading import attribute as read
from .reading.backend_config import read_backend_config
from .reading.header import read_donors, read_entry_layout
from .reading.scan import Scanner
from .reading.shape import read_shape
from .replica_groups import read_replica_groups


@dataclass(frozen=True, slots=True)
class Notation:
    """How the value of an attribute stands in the text."""

    read: Callable[[Scanner], Any]
    write: Callable[[Any], str]


_INTS = Notation(read.read_ints, write.write_ints)
_INT = Notation(read.read_int, str)
_BOOL = Notation(read.read_bool, write.write_bool)
_BOOLS = Notation(read.read_bools, write.write_bools)
_ENUM = Notation(read.read_enum, str)
_STRING = Notation(read.read_string, write.quote)
_COMPUTATION = Notation(read.read_computation, write.write_name)
_COMPUTATIONS = Notation(read.read_computations, write.write_names)
_VERBATIM = Notation(read.read_verbatim, str)

_GROUPS = [
    (
        _INTS,
        """dimensions dynamic_slice_sizes offset_dims collapsed_slice_dims start_index_map operand_batching_dims
        start_indices_batching_dims update_window_dims inserted_window_dims scatter_dims_to_operand_dims
        input_batching_dims scatter_indices_batching_dims lhs_batch_dims lhs_contracting_dims rhs_batch_dims
        rhs_contracting_dims lhs_ragged_dims rhs_group_dims fft_length shifts""",
    ),
    (
        _INT,
        """index iota_dimension index_vector_dim feature_group_count batch_group_count channel_id exponent_bits
        mantissa_bits feature_index delta cross_program_prefetch_index k num_carries inferred_dimension replica_count
        num_partitions""",
    ),
    (
        _BOOL,
        """is_stable indices_are_sorted unique_indices use_global_device_ids constrain_layout is_host_transfer
        custom_call_has_side_effect lower unit_diagonal left_side largest is_scheduled alias_passthrough_params
        is_reverse is_associative is_composite has_dynamic_root""",
    ),
    (
        _BOOLS,
        """parameter_replication allow_spmd_sharding_propagation_to_parameters
        allow_spmd_sharding_propagation_to_output""",
    ),
    (
        _ENUM,
        "algorithm padding_type schedule api_version transpose_a mode conv_kind order",
    ),
    (_STRING, "custom_call_target infeed_config outfeed_config async_execution_thread"),
    (_COMPUTATION, "to_apply calls condition body true_computation false_computation select scatter"),
    (_COMPUTATIONS, "branch_computations called_computations"),
    (_VERBATIM, "domain statistics origin result_accuracy origin_recovery_table literal"),
]

NOTATIONS: dict[str, Notation] = {
    **{key: notation for notation, keys in _GROUPS for key in words(keys)},
    "slice_sizes": Notation(read.read_slice_sizes, write.write_slice_sizes),
    "direction": Notation(read.read_word_of("EQ", "NE", "GE", "GT", "LE", "LT"), str),
    "type": Notation(read.read_word_of("FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"), str),
    "kind": Notation(read.read_word_of("kLoop", "kInput", "kOutput", "kCustom"), str),
    "fft_type": Notation(read.read_word_of("FFT", "IFFT", "RFFT", "IRFFT"), str),
    "distribution": Notation(read.read_word_of("rng_uniform", "rng_normal"), str),
    "operand_precision": Notation(read.read_enums, write.write_enums),
    "epsilon": Notation(read.read_float, write.write_float),
    "slice": Notation(read.read_slices, write.write_slices),
    "padding": Notation(read.read_padding, write.write_padding),
    "window": Notation(read.read_window, str),
    "dim_labels": Notation(read.read_dim_labels, str),
    "sharding": Notation(read.read_sharding, str),
    "replica_groups": Notation(read_replica_groups, str),
    "source_target_pairs": Notation(read.read_int_lists, write.write_int_lists),
    "backend_config": Notation(read_backend_config, write.write_backend_config),
    "frontend_attributes": Notation(read.read_frontend_attributes, write.write_frontend_attributes),
    "metadata": Notation(read.read_metadata, write.write_metadata),
    "control-predecessors": Notation(read.read_names, write.write_names),
    "operand_layout_constraints": Notation(read.read_shapes, write.write_items),
    "output_to_operand_aliasing": Notation(read.read_aliases, write.write_items),
    "input_output_alias": Notation(read.read_aliases, write.write_spaced_items),
    "outfeed_shape": Notation(read_shape, str),
    "entry_computation_layout": Notation(read_entry_layout, str),
    "buffer_donor": Notation(read_donors, write.write_spaced_items),
}
"""The attributes of instructions and of the module's header."""

COMPUTATION_KEYS = words("to_apply calls condition body true_computation false_computation select scatter") | words(
    "branch_computations called_computations"
)
"""The attributes that name computations."""
