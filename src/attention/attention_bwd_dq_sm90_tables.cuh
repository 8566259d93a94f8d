// What attention_bwd_dq_sm90 is made of: sizes, shared memory, barriers and registers that follow from
// Config, and the tables that publish them.
#pragma once
#include "src/attention/attention_bwd_params.cuh"
#include "src/common/math.cuh"
#include "src/common/tables.cuh"
#include "src/common/types.cuh"

namespace mxfa {

struct AttentionBwdDqSm90Tables {
  static constexpr int kD = Config::head_dim;
  static constexpr int kTileN = Config::tile_n;  // keys of a block
  static constexpr int kConsumers = Config::consumer_warpgroups;
  static constexpr int kQStages = Config::q_stages, kKStages = Config::k_stages, kVStages = Config::v_stages,
                       kSegmentStages = 2;
  static constexpr bool kRightMask = Config::right_mask;  // causal or a right window
  static constexpr bool kLeftMask = Config::left_mask;    // a left window
  static constexpr int kTileM = 64 * kConsumers;
  static constexpr int kThreads = 128 * (kConsumers + 1);
  static constexpr int kStatRows = backward_rows(kD);  // rows of a tile of LSE and delta
  // A row of 64 bf16 is 128 bytes = one swizzle span; D = 96 takes two panels, the second half empty (TMA
  // fills it with zeros).
  static constexpr int kPanels = (kD + 63) / 64;
  static constexpr int kBox = 64 * 128;  // 64 rows of a panel
  static constexpr int kQPanel = kTileM * 128, kKvPanel = kTileN * 128;
  static constexpr int kQBytes = kPanels * kQPanel, kKvBytes = kPanels * kKvPanel;
  // dQ of a tile leaves through the buffer its Q came in; a second one lets the next Q come meanwhile.  dO
  // needs none: it is free when the last dP is complete, a product of dQ and a store before the next dP.
  // K is held longer than V, from the first warpgroup's S to the last one's dQ.
  static constexpr int kQOffset = 0, kDOutOffset = kQStages * kQBytes;
  static constexpr int kKOffset = kDOutOffset + kQBytes, kVOffset = kKOffset + kKStages * kKvBytes;
  static constexpr int kSegmentOffset = kVOffset + kVStages * kKvBytes, kSegmentBytes = 48;
  static constexpr int kBarrierOffset = kSegmentOffset + kSegmentStages * kSegmentBytes;
  static constexpr int kSegmentFull = kBarrierOffset, kSegmentEmpty = kSegmentFull + 8 * kSegmentStages;
  static constexpr int kQFull = kSegmentEmpty + 8 * kSegmentStages, kQEmpty = kQFull + 8 * kQStages;
  static constexpr int kDOutFull = kQEmpty + 8 * kQStages, kDOutEmpty = kDOutFull + 8;
  static constexpr int kKFull = kDOutEmpty + 8, kKEmpty = kKFull + 8 * kKStages;
  static constexpr int kVFull = kKEmpty + 8 * kKStages, kVEmpty = kVFull + 8 * kVStages;
  static constexpr int kSharedBytes = kVEmpty + 8 * kVStages;
  // 1024 bytes of slack align the base.
  static constexpr int kAllocatedBytes = kSharedBytes + 1024;
  static_assert(kAllocatedBytes <= 232448, "227 KB a CTA");
  static_assert(kTileN % 16 == 0 && kTileN >= 64 && kTileN <= 128, "one wgmma covers the key block");
  static_assert(kD == 64 || kD == 96 || kD == 128, "head_dim");
  static_assert(kQStages == 1 || kQStages == 2, "q_stages");
  static_assert(kKStages >= 2, "S of a block is issued while dQ of the block before still reads its K");
  // setmaxnreg trades registers of the CTA's own pool: what the launch gave out, rounded down to 8 a thread.
  // Asking for more blocks for ever.
  static constexpr int kPool = 65536 / kThreads / 8 * 8 * kThreads;
  static_assert(128 * (kConsumers * Config::consumer_registers + Config::producer_registers) <= kPool,
                "register budget");
  // One arrival a consumer warp: every warp reads the description and all of K and V, and each waits for its
  // own quarter of a wgmma.
  static constexpr int kEmptyCount = 4 * kConsumers;
  static constexpr float kMinusInfinity = -bits_float(0x7f800000);

  MXFA_CONSTEXPR static KernelTables tables() {
    constexpr uint32_t never = kNeverWaits, q = kQStages, segments = kSegmentStages;
    // The loader is one thread of a warpgroup: setmaxnreg frees the registers of whole warpgroups.
    return {.magic = kTablesMagic,
            .params_bytes = sizeof(AttentionBackwardDqParams),
            .threads = kThreads,
            .shared_bytes = kAllocatedBytes,
            .tmem_columns = 0,
            .tile_rows = kTileM,
            .role_count = 2,
            .smem_count = 6,
            .tmem_count = 0,
            .barrier_count = 10,
            .roles = {{"load", 0, 4, Config::producer_registers},
                      {"consumer", 4, 4 * kConsumers, Config::consumer_registers}},
            .smem = {{"q, dq", kQOffset, kQBytes, q, 1024},
                     {"do", kDOutOffset, kQBytes, 1, 1024},
                     {"k", kKOffset, kKvBytes, kKStages, 1024},
                     {"v", kVOffset, kKvBytes, kVStages, 1024},
                     {"segment", kSegmentOffset, kSegmentBytes, segments, 16},
                     {"barriers", kBarrierOffset, kSharedBytes - kBarrierOffset, 1, 8}},
            .tmem = {},
            .barriers = {
                {"segment_full", kSegmentFull, segments, 1, 0, "load", "consumer", never, 0},
                {"segment_empty", kSegmentEmpty, segments, kEmptyCount, 0, "consumer warp", "load", never, 1},
                {"q_full", kQFull, q, 1, kQBytes, "load", "consumer", never, 0},
                {"q_empty", kQEmpty, q, kEmptyCount, 0, "consumer warp", "load", never, 1},
                {"do_full", kDOutFull, 1, 1, kQBytes, "load", "consumer", never, 0},
                {"do_empty", kDOutEmpty, 1, kEmptyCount, 0, "consumer warp", "load", never, 1},
                {"k_full", kKFull, kKStages, 1, kKvBytes, "load", "consumer", never, 0},
                {"k_empty", kKEmpty, kKStages, kEmptyCount, 0, "consumer warp", "load", never, 1},
                {"v_full", kVFull, kVStages, 1, kKvBytes, "load", "consumer", never, 0},
                {"v_empty", kVEmpty, kVStages, kEmptyCount, 0, "consumer warp", "load", never, 1}}};
  }
};

}  // namespace mxfa
