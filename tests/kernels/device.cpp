// Device memory through the runtime's own driver table, so that the same tests run on a GPU.
#include "kernels/device.hpp"

#include <algorithm>
#include <cstdlib>

#include "support/catch.hpp"
#include "support/kernel_cache.hpp"

namespace mxfa::test {

Device*& Device::current() {
  static Device* device = nullptr;
  return device;
}

Device& Device::instance() {
  if (current()) return *current();
  // Never destroyed: a driver library may already be shut down when static objects are.
  const char* chosen = std::getenv("MXFA_TEST_DEVICE");
  static Device* device = new Device(chosen ? chosen : "emulator:b200");
  return *device;
}

OnHopper::OnHopper() : before_(Device::current()) {
  std::string why;
  if (std::getenv("MXFA_TEST_DEVICE")) {
    Device::current() = &Device::instance();
  } else {
    static Device* gpu = nullptr;
    static std::string missing;
    if (!gpu && missing.empty()) {
      try {
        gpu = new Device("gpu");
      } catch (const Error& error) {
        missing = error.what();
      }
    }
    if (gpu) Device::current() = gpu;
    why = missing;
  }
  const Device* device = Device::current();
  if (why.empty() && device->arch() != "sm_90a") why = device->arch() + " has no attention_fwd_sm90";
  ready_ = why.empty();
  if (!ready_) WARN("not run: " << why);
}
OnHopper::~OnHopper() { Device::current() = before_; }

Device::Device(const std::string& device) {
  setenv("MXFA_EMULATOR_LIBRARY", MXFA_EMULATOR_LIBRARY, 0);
  context_ = std::make_unique<Context>(device.c_str(), kernel_cache().c_str());
  driver_ = load_driver(parse_device(device.c_str()));
  CUcontext primary = nullptr;
  driver_.check(driver_.cuDevicePrimaryCtxRetain(&primary, driver_.device), "cuDevicePrimaryCtxRetain");
  driver_.check(driver_.cuCtxPushCurrent_v2(primary), "cuCtxPushCurrent");
  // It waits for the default stream, on which buffers are filled: the driver's functions for that may return
  // before the device has done it.
  driver_.check(driver_.cuStreamCreate(&stream_, CU_STREAM_DEFAULT), "cuStreamCreate");
}

void Device::synchronize() const { driver_.check(driver_.cuStreamSynchronize(stream_), "kernel"); }

Buffer::Buffer(size_t bytes, uint8_t fill) : bytes_(bytes) {
  const Driver& driver = Device::instance().driver();
  driver.check(driver.cuMemAlloc_v2(&allocation_, bytes + 3 * kGuard), "cuMemAlloc");
  address_ = (allocation_ + kGuard - 1) / kGuard * kGuard;
  driver.check(driver.cuMemsetD8_v2(address_, kGuardByte, bytes + 2 * kGuard), "cuMemsetD8");
  if (bytes > 0 && fill != kGuardByte)
    driver.check(driver.cuMemsetD8_v2(address_ + kGuard, fill, bytes), "cuMemsetD8");
}

Buffer::~Buffer() {
  CHECK(guards_intact());
  Device::instance().driver().cuMemFree_v2(allocation_);
}

void Buffer::write(size_t first_byte, const void* source, size_t bytes) {
  if (bytes == 0) return;
  const Driver& driver = Device::instance().driver();
  driver.check(driver.cuMemcpyHtoD_v2(address_ + kGuard + first_byte, source, bytes), "cuMemcpyHtoD");
}

void Buffer::read(ptrdiff_t first_byte, void* target, size_t bytes) const {
  if (bytes == 0) return;
  const Driver& driver = Device::instance().driver();
  driver.check(driver.cuMemcpyDtoH_v2(target, address_ + kGuard + first_byte, bytes), "cuMemcpyDtoH");
}

bool Buffer::guards_intact() const {
  std::vector<uint8_t> guards(2 * kGuard);
  read(-static_cast<ptrdiff_t>(kGuard), guards.data(), kGuard);
  read(static_cast<ptrdiff_t>(bytes_), guards.data() + kGuard, kGuard);
  return std::all_of(guards.begin(), guards.end(), [](uint8_t byte) { return byte == kGuardByte; });
}

std::unique_ptr<Buffer> prepared_workspace(const Plan& plan) {
  auto workspace = std::make_unique<Buffer>(plan.workspace());
  plan.prepare(workspace->data(), Device::instance().stream());
  return workspace;
}

Schedule::Schedule(const std::string& value) {
  const size_t colon = value.find(':');
  setenv("MXFA_EMU_SCHEDULE", value.substr(0, colon).c_str(), 1);
  if (colon != std::string::npos) setenv("MXFA_EMU_SEED", value.substr(colon + 1).c_str(), 1);
}
Schedule::~Schedule() {
  unsetenv("MXFA_EMU_SCHEDULE");
  unsetenv("MXFA_EMU_SEED");
}

std::vector<std::string> schedules(int random_count) {
  std::vector<std::string> names{"functional", "lazy", "eager"};
  const std::string randomised[] = {"random", "pct", "split"};
  for (int seed = 1; seed <= random_count; ++seed)
    names.push_back(randomised[seed % 3] + ":" + std::to_string(seed));
  return names;
}

}  // namespace mxfa::test
