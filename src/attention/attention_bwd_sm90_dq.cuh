// dQ of attention_bwd_sm90: a compute warpgroup's share of the products, one step late, and how they are
// added to the accumulators in the workspace.
#pragma once
#include "ptx/atomic.cuh"
#include "ptx/barrier.cuh"
#include "ptx/bulk.cuh"
#include "ptx/convert.cuh"
#include "ptx/descriptor.cuh"
#include "ptx/elect.cuh"
#include "ptx/fence.cuh"
#include "ptx/ld_st.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/wgmma.cuh"
#include "src/attention/attention_bwd_params.cuh"
#include "src/attention/attention_bwd_sm90_walk.cuh"
#include "src/common/pipeline.cuh"

namespace mxfa {

struct AttentionBwdSm90Dq : AttentionBwdSm90Walk {
  struct LateDq {
    const AttentionBackwardParams& p;
    uint32_t smem;
    int group, warp, lane;
    PipelineState<kKvStages> kv;
    // Q|dO and dS advance together; one state for both cost five percent of the cycles (docs/hopper.md).
    PipelineState<kQStages> ring;
    PipelineState<kDsStages> ds;
    // The step whose dQ is still to come: its dS and K, the K|V stage to give back with it (-1: others need
    // it still), its first unit in the accumulators, and how many of this warpgroup's rows the sequence has.
    bool late;
    uint32_t late_ds, late_keys;
    int late_release, late_unit, late_rows;

    MXFA_DEVICE uint32_t keys() const { return smem + kKOffset + kv.stage * kKvStageBytes; }
    MXFA_DEVICE uint32_t staging() const {
      return smem + kStagingOffset + (4 * group + warp) * kStagingBytes;
    }
    MXFA_DEVICE uint32_t ds_box(uint32_t stage, int of) const {
      return smem + kDsOffset + (stage * kCompute + of) * kDsBytes;
    }

    // Turns: a tile of keys adds to 16 rows and 64 channels of dQ when all that come before it in the list
    // have.  It only waits for tiles that were taken before it, so somebody can always go on.  It ends
    // when the next is waited for: by then the additions, which the release waits for, have long been made.
    MXFA_DEVICE uint32_t turn_slot() const { return smem + kTurnOffset + 8 * (4 * group + warp); }
    MXFA_DEVICE void take_turn() {
      end_turn();
      if (late_rows <= 16 * warp) return;
      int index = 2 * (late_unit + 2 * warp) + panel();
      int turn = uniform(lane == 0 ? ld_shared_b32(turn_slot()) : 0);
      while (uniform(lane == 0 ? ld_acquire_gpu_s32(pointer<int32_t>(p.turns) + index) : 0) != turn) {
      }
      warp_sync();  // the additions of all lanes come after what lane 0 has acquired
      if (lane == 0) st_shared_b32(turn_slot() + 4, index);
    }
    // The additions of all lanes come before the release: the warp has been synchronised since, by publish_ds
    // or behind the walk.
    MXFA_DEVICE void end_turn() {
      if (lane == 0) {
        int before = int32_t(ld_shared_b32(turn_slot() + 4));
        if (before >= 0) red_add_release_gpu_s32(pointer<int32_t>(p.turns) + before, 1);
        st_shared_b32(turn_slot() + 4, uint32_t(-1));
      }
    }
    // The turn in which the tile adds to query tile m: tiles whose keys are left of what its rows see are not
    // counted.
    MXFA_DEVICE void note_turn(const Tile& t, int m) {
      int unseen = 0;
      if (kLeftMask && !p.broadcast_q)
        unseen = max_of(kTileM * m + t.k_length - t.q_length - p.window_left, 0) / kTileN;
      if (lane == 0) st_shared_b32(turn_slot(), t.turn - unseen);
    }

    // This warpgroup's share of dQ of the late step: sum over keys of dS^T (keys x queries: A is M-major)
    // times K (keys x channels: B is N-major).  Without a late step a product is computed all the same, of
    // this tile's K with itself, and dropped: ptxas serialises every wgmma of the kernel when some stand in a
    // branch.
    MXFA_DEVICE void issue_dq(float (&acc)[kDqColumns / 2]) {
      if (kDeterministic && late) take_turn();
      if (late) mbarrier_wait(smem + kDsFull + 8 * (ds.stage ^ 1), ds.stage == 0 ? ds.phase ^ 1 : ds.phase);
      const uint64_t ds_t = kDqTransposed ? wgmma_descriptor(late_ds, kDsStep, 256, Swizzle::k32B)
                                          : wgmma_descriptor(late_ds + (kSplitRows ? group * kBox : 0), kBox,
                                                             1024, Swizzle::k128B);
      const uint64_t k = wgmma_descriptor(late_keys + panel() * kKvPanel, kKvPanel, 1024, Swizzle::k128B);
      constexpr int kDs16Keys = kDqTransposed ? 16 * 32 : 16 * 128;
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < 4 * kCompute; ++step) {  // of 16 keys
        const uint64_t ds_step = descriptor_advance(ds_t, (step / 4) * kDsBytes + (step % 4) * kDs16Keys);
        const uint64_t k_step = descriptor_advance(k, step * 16 * 128);
        const uint64_t a = kDqTransposed ? k_step : ds_step, b = kDqTransposed ? ds_step : k_step;
        if (step == 0) {
          wgmma_bf16_ss_first<1, 1>(acc, a, b);
        } else {
          wgmma_bf16_ss<1, 1>(acc, a, b, true);
        }
      }
      wgmma_commit();
    }
    // ... is complete: adds it to the workspace, or stages it for flush_dq (true).
    MXFA_DEVICE bool add_dq(const float (&acc)[kDqColumns / 2]) {
      if (!late) return false;
      // The step has become the one before the last.
      if (lane == 0) {
        mbarrier_arrive(smem + kDsEmpty + 8 * (ds.stage ^ 1));
        if (late_release >= 0) mbarrier_arrive(smem + kKvEmpty + 8 * late_release);
      }
      late = false;
      if constexpr (kDqTransposed) {
        return stage_transposed(acc);
      } else {
        return add_or_stage(acc);
      }
    }
    MXFA_DEVICE bool add_or_stage(const float (&acc)[kDqColumns / 2]) {
      if (late_rows <= 16 * warp) return false;  // rows past the end are the next sequence's
      int chunks = dq_chunks();
      uint8_t* out = dq_address() + 16 * lane;
      // Shared memory and the load/store unit are both short of time: each carries a share.
#pragma unroll
      for (int half = 0; half < 2; ++half) {  // a thread's two rows
        if (16 * warp + 8 * half + lane / 4 >= late_rows) continue;
#pragma unroll
        for (int c = 0; c < kDirectChunks; c += kChunksAnAdd) {
          if (c >= chunks) continue;
          uint8_t* to = out + half * dq_unit_bytes(kD, kDqFp16) + kChunkBytes * c;
          const float* x = acc + 4 * c + 2 * half;
          if constexpr (kDqFp16) {
            red_global_add_v4_f16x2(to, dq_words(acc, c, half));
          } else {
            red_global_add_v4_f32(reinterpret_cast<float*>(to), x[0], x[1], x[4], x[5]);
          }
        }
      }
      if (kStagedChunks == 0 || chunks <= kDirectChunks) return false;
      acquire_staging();
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int c = kDirectChunks; c < 8; c += kChunksAnAdd)
          st_shared_v4(staging() + half * (kStagingBytes / 2) + kChunkBytes * (c - kDirectChunks) + 16 * lane,
                       dq_words(acc, c, half));
      return true;
    }
    // Of a unit a lane has two rows of two channels.
    MXFA_DEVICE bool stage_transposed(const float (&acc)[kDqColumns / 2]) {
      if (sixteen() >= kD / 16) return false;  // D = 96 has half a second panel
      acquire_staging();
#pragma unroll
      for (int unit = 0; unit < kTileM / kDqUnit; ++unit) {
        const float* x = acc + 4 * unit;
        const uint32_t to = staging() + kUnitBytes * unit + kUnitBytes / 32 * lane;
        if constexpr (kDqFp16) {
          const float by = p.dq_scale;
          st_shared_v2(to, cvt_rn_f16x2_f32(x[1] * by, x[0] * by), cvt_rn_f16x2_f32(x[3] * by, x[2] * by));
        } else {
          st_shared_v4(to, {float_bits(x[0]), float_bits(x[1]), float_bits(x[2]), float_bits(x[3])});
        }
      }
      return true;
    }
    // This warp's channels, of dQ^T: 16 from 16 times this on.
    MXFA_DEVICE int sixteen() const { return 4 * group + warp; }
    // What was staged before has been read.
    MXFA_DEVICE void acquire_staging() {
      if (elect_one()) bulk_wait_group_read<0>();
      warp_sync();
    }
    // The late step's accumulators of this warp's first unit, from this warpgroup's panel on.
    MXFA_DEVICE uint8_t* dq_address() const {
      return pointer<uint8_t>(p.dq_accumulator) + int64_t(late_unit + 2 * warp) * dq_unit_bytes(kD, kDqFp16) +
             panel() * 8 * kChunkBytes;
    }
    // This lane's 16 bytes of row lane/4 (+ 8 half) and kChunksAnAdd chunks.
    MXFA_DEVICE U32x4 dq_words(const float (&acc)[kDqColumns / 2], int c, int half) const {
      const float* x = acc + 4 * c + 2 * half;
      if constexpr (!kDqFp16) return {float_bits(x[0]), float_bits(x[1]), float_bits(x[4]), float_bits(x[5])};
      const float by = p.dq_scale;
      return {cvt_rn_f16x2_f32(x[1] * by, x[0] * by), cvt_rn_f16x2_f32(x[5] * by, x[4] * by),
              cvt_rn_f16x2_f32(x[9] * by, x[8] * by), cvt_rn_f16x2_f32(x[13] * by, x[12] * by)};
    }
    // The step that has been staged is still the late one.
    MXFA_DEVICE void flush_dq() {
      fence_proxy_async_shared_cta();  // the bulk copy reads through the async proxy
      warp_sync();
      if (!elect_one()) return;
      if constexpr (kDqTransposed) {
        // The units of a step that the sequence has, one after the other for each 16 channels.
        const int bytes = kUnitBytes * min_of(ceil_div(late_rows, kDqUnit), kTileM / kDqUnit);
        bulk_reduce(pointer<uint8_t>(p.dq_accumulator) + int64_t(late_unit) * dq_unit_bytes(kD, kDqFp16) +
                        sixteen() * bytes,
                    staging(), bytes);
        bulk_commit_group();
        return;
      }
      uint32_t bytes = kChunkBytes * (dq_chunks() - kDirectChunks);
      uint8_t* out = dq_address() + kChunkBytes * kDirectChunks;
      bulk_reduce(out, staging(), bytes);
      if (late_rows > 16 * warp + 8)
        bulk_reduce(out + dq_unit_bytes(kD, kDqFp16), staging() + kStagingBytes / 2, bytes);
      bulk_commit_group();
    }
    MXFA_DEVICE static void bulk_reduce(uint8_t* out, uint32_t from, uint32_t bytes) {
      if constexpr (kDqFp16) {
        bulk_reduce_add_f16(out, from, bytes);
      } else {
        bulk_reduce_add_f32(out, from, bytes);
      }
    }
    // The panel of this warpgroup's channels, and its chunks of 8: D = 96 has half a second panel.
    MXFA_DEVICE int panel() const { return kD == 64 ? 0 : group; }
    MXFA_DEVICE int dq_chunks() const { return kD % 64 == 0 ? 8 : min_of(kD / 8 - 8 * panel(), 8); }
  };
};

}  // namespace mxfa
