// Lengths that lie in device memory: plans for a capacity, the kernel that lists the tiles of a launch, and
// what it finds wrong.
#pragma once

#include "host/plan.hpp"

namespace mxfa {

// Whether max_total or max_length says that the lengths are known on the device only.
bool has_capacity(const mxfa_attention& attention);
// Checks the capacity and sets plan.q and plan.k.  Throws mxfa::Error.
void read_capacity(const mxfa_attention& attention, mxfa_plan& plan);
// `what` ("kernel.pack_heads is on") cannot be decided on the device.
[[noreturn]] void refuse_with_capacity(const std::string& what, const char* remedy);

// The list of tiles that an attention kernel takes; abi::AttentionLengthsParams.
struct DeviceTiles {
  bool of_keys;
  int32_t heads, tile_rows, unit_rows, block_rows;
  bool in_order, zigzag;
  int32_t max_ctas;
  int32_t q_tile_rows;  // of the list of query tiles; 0: there is none
};
// Loads the kernel, makes room in the workspace, and sets the plan's grid and numbers of tiles.
void add_device_lengths(mxfa_plan& plan, const DeviceTiles& tiles);

// The offsets of a launch: there with a capacity, absent without.
void check_offsets_pointers(const mxfa_plan& plan, const int32_t* offsets_q, const int32_t* offsets_k);
// In front of the attention kernels.
void launch_lengths(const mxfa_plan& plan, uint64_t workspace, const int32_t* offsets_q,
                    const int32_t* offsets_k, CUstream stream);
// mxfa_plan_check.
void check_device_lengths(const mxfa_plan& plan, const void* workspace, CUstream stream);

}  // namespace mxfa
