// The host's half of a jagged operation: checks of the offsets, scale offsets, tile lists and the workspace
// they are uploaded to; and mxfa_plan.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "host/context.hpp"

namespace mxfa {

inline constexpr int32_t kScaleTileRows =
    128;  // rows of a scale-factor atom; per-sequence starts of scale storage are multiples of it

// One packed tensor's sequences.
struct Sequences {
  std::vector<int32_t> offsets;  // batch + 1
  std::vector<int32_t>
      scale_offsets;  // batch + 1: starts of each sequence in scale storage, multiples of 128
  // Lengths in device memory: what they may be; no offsets, and no length() then.
  struct Capacity {
    int32_t batch, total, longest;
  };
  std::optional<Capacity> capacity;
  int32_t batch() const { return capacity ? capacity->batch : int32_t(offsets.size()) - 1; }
  int32_t length(int32_t b) const { return offsets[b + 1] - offsets[b]; }
  int32_t total() const { return capacity ? capacity->total : offsets.back(); }
  int32_t scale_rows() const;  // S, or the most that it can be
  int32_t longest() const;
};

// Copies and checks offsets[0 .. batch]; `name` ("offsets_k") begins every message.  Throws mxfa::Error.
Sequences read_sequences(const char* name, int32_t batch, const int32_t* offsets);

// What a plan keeps in device memory: pieces, each 256-byte aligned, copied in one transfer.
class WorkspaceImage {
 public:
  // Appends a copy; returns its offset in the workspace.
  template <class T>
  uint64_t add(const std::vector<T>& values) {
    return add(values.data(), values.size() * sizeof(T));
  }
  uint64_t add(const void* bytes, size_t size);
  // Room behind the image that kernels write before they read it.  Pieces cannot be added after it.
  uint64_t reserve(uint64_t bytes);
  const std::vector<char>& bytes() const { return bytes_; }    // what is copied
  uint64_t size() const { return bytes_.size() + reserved_; }  // what the caller allocates

 private:
  std::vector<char> bytes_;
  uint64_t reserved_ = 0;
};
inline constexpr uint64_t kWorkspaceAlignment = 256;

// Checks of caller-supplied device buffers; `name` ("K") begins every message.
struct TensorRule {
  const char* name;
  const char* rows_are;  // where the number of rows comes from: "offsets_q: the last offset"
  int32_t heads, head_dim, element_bytes;
  int32_t rows;  // at least
};
void check_tensor(const mxfa_tensor& tensor, const TensorRule& rule);
void check_scales(const mxfa_scales& scales, const char* name, int32_t orientation, int32_t heads,
                  int32_t scale_rows);
// `place` ("Q.scales") names a buffer that this operation would ignore.
void refuse_scales(const mxfa_scales& scales, const char* place, const char* why);
void check_aligned(const void* pointer, uint64_t alignment, const char* name);

// What an attention backward has beside its main kernel; docs/hopper.md.
struct BackwardPlan {
  Kernel *prepare = nullptr, *dq = nullptr, *finish = nullptr;  // owned by the context; null: not launched
  uint32_t prepare_grid = 0, dq_grid = 0, finish_grid = 0;      // CTAs; 0: not launched
  uint64_t at_q_tiles = 0, at_statistics = 0, at_dq_accumulator = 0, at_turns = 0, at_dq_tiles = 0,
           at_dq_runs = 0, at_progress = 0, at_rows = 0;  // in the workspace
  int32_t row_tiles = 0, pairs = 0, row_warps = 0;        // what the main kernel prepares; pairs 0: nothing
  int32_t stat_tiles = 0, dq_units = 0, dq_replicas = 0;
  int32_t dq_tile_count = 0;
  int32_t max_ctas = 0;      // of the main kernel and of dq
  int32_t scale_rows_o = 0;  // MXFP8: of the scales of dO
};

// MXFP8 operands that are multiplied out to BF16 first (expand.hpp).
struct ExpandPlan {
  struct Operand {
    uint64_t at, at_offsets, at_scale_offsets;  // in the workspace
    int32_t batch, heads, scale_tiles, rows, orientation;
  };
  Kernel* kernel = nullptr;  // owned by the context; null: nothing is
  uint32_t grid = 0;         // CTAs; 0: not launched
  std::vector<Operand> operands;
};

// What a plan for lengths in device memory has beside; attention_lengths.hpp.
struct LengthsPlan {
  Kernel* kernel = nullptr;              // owned by the context; null: the host knew the lengths
  abi::AttentionLengthsParams params{};  // but for the addresses
  uint32_t grid = 0;
  uint64_t at_error = 0;  // in the workspace
};

}  // namespace mxfa

struct mxfa_plan {
  enum class Operation { kAttentionForward, kAttentionBackward, kQuantize } operation;
  mxfa_context* context = nullptr;
  mxfa::Kernel* kernel = nullptr;               // owned by the context
  mxfa::KernelConfig config;                    // of this plan; the kernel's may be another plan's
  mxfa::Sequences q, k;                         // quantize: q only
  uint32_t grid = 0;                            // CTAs; 0: nothing to launch
  uint32_t tile_count = 0;                      // of the tile list; quantize: grid
  uint32_t slot_count = 0;                      // attention: entries of the tile list
  int32_t rows_o = 0;                           // attention: rows of O
  int32_t window_left = -1, window_right = -1;  // attention: as the kernel takes them
  mxfa::WorkspaceImage workspace;
  uint64_t at_tiles = 0, at_offsets_q = 0, at_offsets_k = 0, at_scale_offsets_q = 0, at_scale_offsets_k = 0,
           at_counters = 0;        // in the workspace
  std::set<uint64_t> prepared;     // workspaces that hold the image
  nlohmann::ordered_json options;  // every option as resolved
  std::string description;

  mxfa_attention attention{};                          // of both attentions; scale resolved
  mxfa_attention_backward_options backward_options{};  // kAttentionBackward
  mxfa::BackwardPlan backward;                         // kAttentionBackward
  mxfa::ExpandPlan expand;                             // of both attentions
  mxfa::LengthsPlan lengths;                           // of both attentions
  mxfa_quantize_desc quantize{};                       // kQuantize

  // The workspace of a launch: given, aligned and prepared.
  uint64_t require_workspace(const void* workspace) const;
};

namespace mxfa {
std::string describe_plan(const mxfa_plan& plan);  // describe.cpp
}
