// What a kernel file tells the host about itself: roles, memory maps, barriers.  The device twin of the
// host's kernel ABI, field by field; the host compares magic and params_bytes when it loads a kernel.
//
//   MXFA_PUBLISH_TABLES(attention_fwd_sm90, mxfa::AttentionFwdSm90::tables());
#pragma once
#include "ptx/types.cuh"

namespace mxfa {

inline constexpr uint32_t kTablesMagic = 0x6166786d;  // "mxfa"
inline constexpr uint32_t kNeverWaits = 2;            // a parity in BarrierRow

struct RoleRow {
  char name[24];
  uint32_t first_warp, warps, registers;
};
struct SmemRow {
  char name[24];
  uint32_t offset, bytes, stages, alignment;  // bytes of one stage
};
struct TmemRow {
  char name[24];
  uint32_t column, columns;
  char live_from[32], live_until[32];
};
struct BarrierRow {
  char name[24];
  uint32_t offset, stages, count, tx_bytes;  // offset in shared memory; arrivals and bytes per phase
  char producer[32], consumer[32];
  uint32_t producer_first_parity,
      consumer_first_parity;  // of their first wait; kNeverWaits where there is none
};
struct KernelTables {
  uint32_t magic, params_bytes, threads, shared_bytes, tmem_columns;  // shared_bytes: dynamic shared memory
  uint32_t tile_rows;  // query rows (or tokens) a CTA tile covers
  uint32_t role_count, smem_count, tmem_count, barrier_count;
  RoleRow roles[8];
  SmemRow smem[16];
  TmemRow tmem[24];
  BarrierRow barriers[24];
};

}  // namespace mxfa

// No kernel reads the variable, and yet it stays: NVRTC and nvcc keep it in PTX and cubin (as .global without
// .visible, which cuModuleGetGlobal finds all the same).  A trailing semicolon belongs to the use.
#define MXFA_PUBLISH_TABLES(KERNEL, TABLES) \
  extern "C" __device__ const mxfa::KernelTables KERNEL##_tables = TABLES
