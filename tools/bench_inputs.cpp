#include "bench_inputs.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "host/error.hpp"
#include "reference/random.hpp"

namespace mxfa::tools {

namespace {

constexpr uint64_t kChunk = uint64_t{1} << 16;  // elements that one seed makes

std::vector<uint16_t> generate(double std, uint64_t seed, uint64_t elements) {
  std::vector<uint16_t> values(elements);
  std::atomic<uint64_t> next = 0;
  const auto work = [&] {
    for (uint64_t chunk; (chunk = next.fetch_add(1)) * kChunk < elements;) {
      const uint64_t first = chunk * kChunk, count = std::min(kChunk, elements - first);
      const std::vector<uint16_t> part =
          reference::random_tensor(reference::DataDistribution::kNormal, std, (seed << 16) + chunk,
                                   reference::Operand::kQ, static_cast<int64_t>(count), 1, 1);
      std::copy(part.begin(), part.end(), values.begin() + static_cast<std::ptrdiff_t>(first));
    }
  };
  std::vector<std::jthread> threads;
  for (unsigned t = 1; t < std::thread::hardware_concurrency(); ++t) threads.emplace_back(work);
  work();
  threads.clear();  // joins
  return values;
}

}  // namespace

CopyOnDevice load_copy_on_device(const Driver& driver) {
  // Already loaded, so this only finds it again; it stays loaded for the life of the process.
  void* handle = dlopen(driver.library.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* symbol = handle ? dlsym(handle, "cuMemcpyDtoDAsync_v2") : nullptr;
  if (!symbol) device_error("{} lacks cuMemcpyDtoDAsync_v2", driver.library);
  return reinterpret_cast<CopyOnDevice>(symbol);
}

RandomBlock::RandomBlock(const Session& session, double std, uint64_t seed, uint64_t elements)
    : session_(session),
      copy_(load_copy_on_device(session.driver())),
      std_(std),
      seed_(seed),
      elements_(elements),
      block_(std::make_unique<DeviceBuffer>(session, "the random block", elements * 2)) {
  block_->upload<uint16_t>(generate(std, seed, elements));
}

void RandomBlock::fill(const DeviceBuffer& buffer, uint64_t elements, int operand) const {
  const auto address = [](const DeviceBuffer& b) { return reinterpret_cast<CUdeviceptr>(b.data()); };
  constexpr uint64_t kHeads = 384;  // a multiple of 64, 96 and 128 channels; 40 is none of any
  uint64_t from = operand * (elements_ / 3 / kHeads * kHeads + 40) % elements_;
  for (uint64_t to = 0; to < elements;) {
    const uint64_t count = std::min(elements - to, elements_ - from);
    session_.driver().check(copy_(address(buffer) + to * 2, address(*block_) + from * 2, count * 2, nullptr),
                            "cuMemcpyDtoDAsync");
    to += count;
    from = (from + count) % elements_;
  }
}

}  // namespace mxfa::tools
