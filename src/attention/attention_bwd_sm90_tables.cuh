// What attention_bwd_sm90 is made of: sizes, shared memory, barriers and registers that follow from Config,
// and the tables that publish them.
#pragma once
#include "src/attention/attention_bwd_mx.cuh"
#include "src/attention/attention_bwd_params.cuh"
#include "src/common/math.cuh"
#include "src/common/tables.cuh"
#include "src/common/types.cuh"

namespace mxfa {

struct AttentionBwdSm90Tables {
  static constexpr int kD = Config::head_dim;
  static constexpr int kCompute = 2;  // compute warpgroups
  static constexpr int kKvStages = Config::kv_stages, kQStages = 2;
  static constexpr bool kWithDq = Config::with_dq;  // else attention_bwd_dq_sm90 computes dQ
  // Without dQ one stage is left, through which dK and dV are stored.
  static constexpr int kDsStages = kWithDq ? kQStages : 1;
  static constexpr bool kRightMask = Config::right_mask;  // causal or a right window
  static constexpr bool kLeftMask = Config::left_mask;    // a left window
  // Of the 8 chunks (8 channels) of a warpgroup's share of dQ, those that are added straight from registers.
  static constexpr int kDirectChunks = Config::direct_chunks, kStagedChunks = kWithDq ? 8 - kDirectChunks : 0;
  static constexpr bool kDqFp16 = Config::dq_fp16;        // accumulators of dQ
  static constexpr int kChunksAnAdd = kDqFp16 ? 4 : 2;    // chunks that a warp adds or stages at a time ...
  static constexpr int kChunkBytes = 512 / kChunksAnAdd;  // ... of 8 rows, 512 bytes
  static_assert(kDirectChunks % kChunksAnAdd == 0, "a warp adds 512 bytes at a time");
  // MXFP8: the operands are multiplied out to BF16 before; P is rounded to E4M3, and dS, where it is not BF16
  // either, in blocks of 32 x 32 (attention_bwd_mx.cuh).
  static constexpr bool kMxfp8 = Config::mxfp8, kSquareDs = Config::square_ds;
  static_assert(kMxfp8 || !kSquareDs, "square blocks are MXFP8's");
  static constexpr float kDvScale = kMxfp8 ? kMxUnscale : 1.0f;
  static constexpr int kTileM = Config::tile_m, kTileN = 64 * kCompute;
  static constexpr int kThreads = 128 * (kCompute + 1);
  // Tiles of keys add to dQ in the order of the list: each warp waits for its turn (AttentionBwdSm90).
  static constexpr bool kDeterministic = Config::deterministic;
  static_assert(kWithDq || !kDeterministic, "turns belong to dQ");
  static_assert(!kDeterministic || kStagedChunks == 0, "a turn ends with additions from registers");
  // Query tiles between the starts of the CTAs farthest apart: for additions to dQ.
  static constexpr int kRotation = kDeterministic || !kWithDq ? 1 : 8;
  // A row of 64 bf16 is 128 bytes = one swizzle span; D = 96 takes two panels, the second half empty (TMA
  // fills it with zeros).  A run of 64 rows of a panel is one TMA box.
  static constexpr int kPanels = (kD + 63) / 64;
  static constexpr int kBox = 64 * 128;
  static constexpr int kKvPanel = kCompute * kBox, kQPanel = kTileM * 128;
  static constexpr int kKvBytes = kPanels * kKvPanel, kQBytes = kPanels * kQPanel;
  static constexpr int kStatisticsBytes = statistics_bytes(kD, kTileM);
  // S^T and dP^T start as products of ones and the rows' numbers (attention_bwd_statistics.cuh).  The ones of
  // either lie behind a stage, whose last rows are read beyond their end: what is found there is finite.
  static constexpr bool kStartsWithRows = statistics_are_operands(kD);
  static constexpr int kOnesBytes = kStartsWithRows ? 128 : 0,
                       kStatisticsStride = kStatisticsBytes + kOnesBytes;
  static_assert(kQStages == 2, "the ones of each of two products have a stage before them");
  static constexpr int kQBoxes = kTileM % 64 == 0 ? kTileM / 64 : 1;
  static constexpr int kDsBytes = kTileM * 128;  // of one compute warpgroup
  // Each compute warpgroup computes 64 rows x 64 channels of dQ: a panel of channels, at D = 64 half of the
  // rows.  80 rows are no whole number of a product's 64: then it computes dQ^T, 64 channels x 80 rows.
  // Its 40 accumulators then have the name of S^T, whose next product is tied to them: 208 of a thread's 240
  // registers are accumulators, and where ptxas may choose, it finds no room for them and serialises every
  // wgmma (C7512).
  static constexpr bool kDqTransposed = dq_is_transposed(kTileM);
  static constexpr int kDsStep = 64 * 32;  // then dS lies in columns of 16 rows, 32 bytes a key
  static constexpr int kDqColumns = kDqTransposed ? kTileM : 64;
  // What a warp has of a unit of 8 rows then: 16 channels.
  static constexpr int kUnitBytes = dq_unit_bytes(kD, kDqFp16) / (kD / 16);
  static constexpr int kStagingBytes =  // of one warp
      kDqTransposed ? kTileM / kDqUnit * kUnitBytes : kStagedChunks * 2 * kChunkBytes;
  static constexpr bool kSplitRows = kTileM == 128;
  static_assert(kTileM == backward_rows(kD) || (kDqTransposed && kD > 64),
                "tile_m is 128 at head_dim 64, 64 or 80 at head_dim 96 and 128");
  static_assert(kTileM == backward_rows(kD) || kWithDq, "attention_bwd_dq_sm90 reads the same statistics");
  static_assert(!kDqTransposed || (kDirectChunks == 0 && !kSquareDs),
                "tile_m 80 needs direct_chunks 0, and takes neither deterministic nor blocks of 32 x 32");
  // K is an operand of S^T from registers: 16 KB a step that shared memory does not give.  Without dQ, which
  // leaves the registers, that is worth up to 7 %, beside it nothing (docs/hopper.md).
  static constexpr bool kKeysInRegisters = Config::keys_in_registers;
  static_assert(!kKeysInRegisters || kD == 64, "keys_in_registers is for head_dim 64");
  static constexpr bool kScoresTied = kDqTransposed || kKeysInRegisters;
  // S^T of the next tile beside the store of dK and dV: with a broadcast Q faster at D = 64,
  // slower at D = 128 (docs/hopper.md).
  static constexpr bool kTilesOverlap = kD == 64 && kKvStages == 2 && kWithDq;
  // dV is issued before dS is stored, or between that and dQ (measured, docs/hopper.md).
  static constexpr bool kDvBeforeDs = Config::dv_before_ds;

  static constexpr int kKOffset = 0, kVOffset = kKvBytes, kKvStageBytes = 2 * kKvBytes;
  static constexpr int kQOffset = kKvStages * kKvStageBytes, kDOutOffset = kQOffset + kQBytes;
  static constexpr int kQStageBytes = 2 * kQBytes;
  static constexpr int kDsOffset = kQOffset + kQStages * kQStageBytes;  // [stage][compute warpgroup]
  static constexpr int kStagingOffset = kDsOffset + kDsStages * kCompute * kDsBytes;
  static constexpr int kStatisticsOffset = kStagingOffset + 4 * kCompute * kStagingBytes;
  static constexpr int kOnesOffset = kStatisticsOffset + kStatisticsBytes;
  static constexpr int kTileOffset = kStatisticsOffset + kQStages * kStatisticsStride, kTileBytes = 48;
  static constexpr int kKFull = kTileOffset + kKvStages * kTileBytes, kVFull = kKFull + 8 * kKvStages;
  static constexpr int kKvEmpty = kVFull + 8 * kKvStages;
  static constexpr int kQFull = kKvEmpty + 8 * kKvStages, kDOutFull = kQFull + 8 * kQStages;
  static constexpr int kQEmpty = kDOutFull + 8 * kQStages;
  static constexpr int kDsFull = kQEmpty + 8 * kQStages, kDsEmpty = kDsFull + 8 * kDsStages;
  static constexpr int kTurnOffset =
      kDsEmpty + 8 * kDsStages;  // of a warp: the late step's, the unended one's
  static constexpr int kMaximaOffset = kTurnOffset + (kDeterministic ? 8 * 4 * kCompute : 0);
  static constexpr int kSharedBytes = kMaximaOffset + (kSquareDs ? SquareBlocks<kTileM>::kSharedBytes : 0);
  static_assert(kSharedBytes <= 232448, "227 KB a CTA");
  static_assert(kD == 64 || kD == 96 || kD == 128, "head_dim");
  // setmaxnreg trades registers of the CTA's own pool: what the launch gave out, rounded down to 8 a thread.
  // Asking for more blocks for ever.
  static constexpr int kPool = 65536 / kThreads / 8 * 8 * kThreads;
  static_assert(128 * (kCompute * Config::compute_registers + Config::producer_registers) <= kPool,
                "register budget");

  // One arrival a warp of the compute warpgroups: each waits for its own quarter of a wgmma, and reads its
  // own registers' share.
  static constexpr int kComputeWarps = 4 * kCompute;
  // Of the producer's warpgroup, whose registers setmaxnreg gives back as a whole: all warps but the loader.
  static constexpr int kRowWarps = 3;
  static constexpr bool kPrepares = kWithDq && !kDeterministic;

  MXFA_CONSTEXPR static KernelTables tables() {
    constexpr uint32_t never = kNeverWaits, kv = kKvStages, q = kQStages, ds = kDsStages;
    // The loader is one thread of a warpgroup: setmaxnreg frees the registers of whole warpgroups.
    return {.magic = kTablesMagic,
            .params_bytes = sizeof(AttentionBackwardParams),
            .threads = kThreads,
            .shared_bytes = kSharedBytes,
            .tmem_columns = 0,
            .tile_rows = kTileM,
            .role_count = kPrepares ? 3 : 2,  // else those warps end at once
            .smem_count = 7,
            .tmem_count = 0,
            .barrier_count = kWithDq ? 8 : 6,
            .roles = {{"load", 0, kPrepares ? 1 : 1 + kRowWarps, Config::producer_registers},
                      {"compute", 4, kComputeWarps, Config::compute_registers},
                      {"rows", 1, kRowWarps, Config::producer_registers}},
            .smem = {{"k, v", kKOffset, kKvStageBytes, kv, 1024},
                     {"q, do", kQOffset, kQStageBytes, q, 1024},
                     {"ds", kDsOffset, kCompute * kDsBytes, ds, 1024},
                     {"dq", kStagingOffset, kComputeWarps * kStagingBytes, 1, 16},
                     {"lse, delta", kStatisticsOffset, kStatisticsStride, q, 16},
                     {"tile", kTileOffset, kTileBytes, kv, 16},
                     {"barriers", kKFull, kTurnOffset - kKFull, 1, 8}},
            .tmem = {},
            .barriers = {{"k_full", kKFull, kv, 1, kKvBytes, "load", "compute", never, 0},
                         {"v_full", kVFull, kv, 1, kKvBytes, "load", "compute", never, 0},
                         {"kv_empty", kKvEmpty, kv, kComputeWarps, 0, "compute warp", "load", never, 1},
                         {"q_full", kQFull, q, 1, kQBytes + kStatisticsBytes, "load", "compute", never, 0},
                         {"do_full", kDOutFull, q, 1, kQBytes, "load", "compute", never, 0},
                         {"q_empty", kQEmpty, q, kComputeWarps, 0, "compute warp", "load", never, 1},
                         {"ds_full", kDsFull, ds, kComputeWarps, 0, "compute warp", "compute", never, 0},
                         {"ds_empty", kDsEmpty, ds, kComputeWarps, 0, "compute warp", "compute", never, 1}}};
  }
};

}  // namespace mxfa
