// Inputs of a timed run: N(0, std) in BF16, made quickly.  One block of 64 MiB is generated on the host by
// all processors and copied over and over on the device; each operand starts at another place of the block,
// by a number of elements that is no multiple of a head, so that no row of Q meets its own copy in K.  Random
// data, because the power a multiplication takes, and with it the clock, depends on how many bits flip.
#pragma once

#include <cstdint>
#include <memory>

#include "session.hpp"

namespace mxfa::tools {

// cuMemcpyDtoDAsync, which only the bench needs; from the library the driver's table came from.
using CopyOnDevice = CUresult (*)(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
CopyOnDevice load_copy_on_device(const Driver& driver);

class RandomBlock {
 public:
  static constexpr uint64_t kElements = uint64_t{32} << 20;

  RandomBlock(const Session& session, double std, uint64_t seed, uint64_t elements = kElements);

  // The first `elements` BF16 values of the buffer; the rest stays as it is.  operand: 0, 1 or 2; 3 starts
  // 120 elements after 0.
  void fill(const DeviceBuffer& buffer, uint64_t elements, int operand) const;
  bool is(double std, uint64_t seed) const { return std_ == std && seed_ == seed; }

 private:
  const Session& session_;
  CopyOnDevice copy_;
  double std_;
  uint64_t seed_, elements_;
  std::unique_ptr<DeviceBuffer> block_;
};

}  // namespace mxfa::tools
