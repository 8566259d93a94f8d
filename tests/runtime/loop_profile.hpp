// How many instructions of which kind a kernel spends in its softmax loop, counted in its text: PTX, or SASS
// as nvdisasm -c prints it.
#pragma once

#include <array>
#include <string>

namespace mxfa::test {

// The pipes of an SM that an instruction takes beside its issue slot.
enum class Pipe {
  kFma,         // scalar FP32
  kHalfFma,     // pairs (f32x2), integer multiplication: half the rate
  kAlu,         // integers, comparisons, selections, maxima
  kMufu,        // 2^x, log2, 1/x
  kConversion,  //
  kMemory,      // shared, tensor and constant memory, barriers, fences
  kControl,     // branches, votes, what waits
  kMove,        // between registers; of those in PTX hardly any is left in SASS
  kCount
};
using PipeCounts = std::array<int, size_t(Pipe::kCount)>;

Pipe pipe_of(const std::string& opcode);

// Of the innermost loop that holds 64 exponentials or more; all zero where there is none.
PipeCounts count_softmax_loop(const std::string& text);

}  // namespace mxfa::test
