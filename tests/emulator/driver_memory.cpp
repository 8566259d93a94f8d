// Allocation, copies, fills, streams and events.
#include <array>

#include "driver_table.hpp"
#include "support/catch.hpp"

using mxfa::test::Buffer;
using mxfa::test::Driver;

namespace {

constexpr CUdeviceptr kNowhere = 0x1234500;

}  // namespace

TEST_CASE("bytes survive the way to the device, across it, and back", "[driver]") {
  Driver& cu = Driver::of("h200");
  std::vector<uint8_t> data(1000);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<uint8_t>(i * 7);
  Buffer from(cu, data), to(cu, data.size());
  REQUIRE(cu.cuMemcpyDtoD_v2(to.address() + 1, from.address(), 999) == CUDA_SUCCESS);
  const auto result = to.read<uint8_t>();
  CHECK(result[0] == 0xff);
  CHECK(std::equal(result.begin() + 1, result.end(), data.begin()));
}

TEST_CASE("fresh device memory of the CPU driver is NaN, not zero", "[driver][emulator-only]") {
  Driver& cu = Driver::of("b200");
  CUdeviceptr memory = 0;
  REQUIRE(cu.cuMemAlloc_v2(&memory, 100) == CUDA_SUCCESS);
  std::array<uint8_t, 100> bytes{};
  REQUIRE(cu.cuMemcpyDtoH_v2(bytes.data(), memory, bytes.size()) == CUDA_SUCCESS);
  CHECK(std::all_of(bytes.begin(), bytes.end(), [](uint8_t byte) { return byte == 0xff; }));
  cu.cuMemFree_v2(memory);
}

TEST_CASE("allocation refuses nothing, nowhere and too much", "[driver]") {
  Driver& cu = Driver::of("h200");
  CUdeviceptr memory = 0;
  CHECK(cu.cuMemAlloc_v2(&memory, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cu.cuMemAlloc_v2(nullptr, 16) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cu.cuMemAlloc_v2(&memory, 1ull << 40) == CUDA_ERROR_OUT_OF_MEMORY);
  const auto rows = reinterpret_cast<decltype(&cuMemAllocPitch_v2)>(cu.symbol("cuMemAllocPitch_v2"));
  size_t pitch = 0;
  for (const auto& [width, height] : {std::pair{size_t{1} << 40, size_t{1} << 24}, {SIZE_MAX, size_t{1}}})
    CHECK(rows(&memory, &pitch, width, height, 4) == CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_CASE("allocations start at multiples of 256", "[driver]") {
  Driver& cu = Driver::of("h200");
  for (size_t bytes : {1, 100, 300}) CHECK(Buffer(cu, bytes).address() % 256 == 0);
}

TEST_CASE("only the start of a live allocation can be freed, and null", "[driver]") {
  Driver& cu = Driver::of("h200");
  CUdeviceptr memory = 0;
  REQUIRE(cu.cuMemAlloc_v2(&memory, 4096) == CUDA_SUCCESS);
  CHECK(cu.cuMemFree_v2(memory + 16) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cu.cuMemFree_v2(kNowhere) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cu.cuMemFree_v2(memory) == CUDA_SUCCESS);
  CHECK(cu.cuMemFree_v2(memory) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cu.cuMemFree_v2(0) == CUDA_SUCCESS);
}

TEST_CASE("copies that leave the allocation or name no memory are refused", "[driver]") {
  Driver& cu = Driver::of("h200");
  CUdeviceptr memory = 0;
  REQUIRE(cu.cuMemAlloc_v2(&memory, 4096) == CUDA_SUCCESS);
  std::vector<char> host(8192);
  CHECK(cu.cuMemcpyHtoD_v2(kNowhere, host.data(), 16) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cu.cuMemcpyHtoD_v2(0, host.data(), 16) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cu.cuMemcpyHtoD_v2(memory, nullptr, 16) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cu.cuMemcpyDtoH_v2(host.data(), kNowhere, 16) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cu.cuMemcpyDtoD_v2(memory, kNowhere, 16) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cu.cuMemcpyHtoDAsync_v2(kNowhere, host.data(), 16, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cu.cuMemcpyHtoD_v2(kNowhere, host.data(), 0) == CUDA_SUCCESS);  // zero bytes look at nothing
  if (!Driver::is_real()) {  // a device rounds allocations up, so it may not see 1 byte too many
    CHECK(cu.cuMemcpyHtoD_v2(memory, host.data(), 4097) == CUDA_ERROR_INVALID_VALUE);
    CHECK(mxfa::test::mentions(cu.last_report(), {"4097 bytes", "allocation"}));
  }
  cu.cuMemFree_v2(memory);
}

TEST_CASE("fills write whole elements and want them aligned", "[driver]") {
  Driver& cu = Driver::of("h200");
  Buffer memory(cu, 16);
  REQUIRE(cu.cuMemsetD32_v2(memory.address(), 0x01020304, 1) == CUDA_SUCCESS);
  REQUIRE(cu.cuMemsetD16_v2(memory.address() + 4, 0x0506, 2) == CUDA_SUCCESS);
  REQUIRE(cu.cuMemsetD8_v2(memory.address() + 8, 7, 3) == CUDA_SUCCESS);
  CHECK(memory.read<uint32_t>() == std::vector<uint32_t>{0x01020304, 0x05060506, 0xff070707, 0xffffffff});
  CHECK(cu.cuMemsetD32_v2(memory.address() + 1, 0, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cu.cuMemsetD16_v2(memory.address() + 1, 0, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cu.cuMemsetD8_v2(kNowhere, 0, 4) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cu.cuMemsetD8_v2(memory.address(), 0, 0) == CUDA_SUCCESS);
  CHECK(cu.cuMemsetD32_v2(memory.address(), 0, (size_t{1} << 62) + 4) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cu.cuMemsetD16_v2(memory.address(), 0, (size_t{1} << 63) + 4) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("rows are copied between pitches, and none if one leaves its allocation", "[driver]") {
  Driver& cu = Driver::of("h200");
  const auto copy_rows = reinterpret_cast<decltype(&cuMemcpy2D_v2)>(cu.symbol("cuMemcpy2D_v2"));
  Buffer memory(cu, 4 * 16);
  std::vector<uint8_t> host(3 * 10);
  for (size_t i = 0; i < host.size(); ++i) host[i] = static_cast<uint8_t>(i);
  CUDA_MEMCPY2D rows{};
  rows.srcMemoryType = CU_MEMORYTYPE_HOST;
  rows.srcHost = host.data();
  rows.srcPitch = 10;
  rows.srcXInBytes = 2;
  rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  rows.dstDevice = memory.address();
  rows.dstPitch = 16;
  rows.dstXInBytes = 1;
  rows.dstY = 1;
  rows.WidthInBytes = 8;
  rows.Height = 3;
  REQUIRE(copy_rows(&rows) == CUDA_SUCCESS);
  const auto bytes = memory.read<uint8_t>();
  for (size_t at = 0; at < bytes.size(); ++at) {
    const size_t row = at / 16, column = at % 16;
    const bool inside = row >= 1 && column >= 1 && column < 9;
    CHECK(bytes[at] == (inside ? host[(row - 1) * 10 + 2 + column - 1] : 0xff));
  }
  const auto refused = [&](auto change) {
    CUDA_MEMCPY2D wrong = rows;
    change(wrong);
    CHECK(copy_rows(&wrong) == CUDA_ERROR_INVALID_VALUE);
  };
  refused([](CUDA_MEMCPY2D& r) { r.Height = 4; });
  refused([](CUDA_MEMCPY2D& r) { r.dstPitch = 8; });
  refused([](CUDA_MEMCPY2D& r) { r.dstPitch = size_t{1} << 63; });
  refused([](CUDA_MEMCPY2D& r) { r.dstY = size_t{1} << 60; });
  refused([](CUDA_MEMCPY2D& r) { r.dstXInBytes = SIZE_MAX; });
  refused([](CUDA_MEMCPY2D& r) { r.srcMemoryType = static_cast<CUmemorytype>(9); });
  CHECK(memory.read<uint8_t>() == bytes);
  if (!Driver::is_real()) {
    rows.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    CHECK(copy_rows(&rows) == CUDA_ERROR_NOT_SUPPORTED);
  }
}

TEST_CASE("kernels reach pinned memory by its address; what is registered can only be copied", "[driver]") {
  Driver& cu = Driver::of("h200");
  const auto allocate = reinterpret_cast<decltype(&cuMemHostAlloc)>(cu.symbol("cuMemHostAlloc"));
  const auto release = reinterpret_cast<decltype(&cuMemFreeHost)>(cu.symbol("cuMemFreeHost"));
  const auto pin = reinterpret_cast<decltype(&cuMemHostRegister_v2)>(cu.symbol("cuMemHostRegister_v2"));
  const auto unpin = reinterpret_cast<decltype(&cuMemHostUnregister)>(cu.symbol("cuMemHostUnregister"));
  const auto device_pointer =
      reinterpret_cast<decltype(&cuMemHostGetDevicePointer_v2)>(cu.symbol("cuMemHostGetDevicePointer_v2"));
  uint32_t* words = nullptr;
  REQUIRE(allocate(reinterpret_cast<void**>(&words), 64, CU_MEMHOSTALLOC_DEVICEMAP) == CUDA_SUCCESS);
  words[3] = 40;
  CUdeviceptr address = 0;
  REQUIRE(device_pointer(&address, words + 3, 0) == CUDA_SUCCESS);
  unsigned type = 0;
  CHECK(cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                 reinterpret_cast<CUdeviceptr>(words)) == CUDA_SUCCESS);
  CHECK(type == CU_MEMORYTYPE_HOST);
  mxfa::test::PtxModule module(
      cu, mxfa::test::ptx_header("sm_90") +
              mxfa::test::ptx_kernel("k", ".param .u64 p",
                                     "  .reg .b64 %w;\n  .reg .b32 %r;\n  ld.param.u64 %w, [p];\n"
                                     "  ld.global.u32 %r, [%w];\n  add.u32 %r, %r, 2;\n"
                                     "  st.global.u32 [%w], %r;"));
  void* parameters[] = {&address};
  REQUIRE(cu.cuLaunchKernel(module.function("k"), 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr) ==
          CUDA_SUCCESS);
  REQUIRE(cu.cuCtxSynchronize() == CUDA_SUCCESS);
  CHECK(words[3] == 42);
  CHECK(cu.cuMemFree_v2(reinterpret_cast<CUdeviceptr>(words)) == CUDA_ERROR_INVALID_VALUE);
  CHECK(unpin(words) == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  CHECK(release(words) == CUDA_SUCCESS);
  CHECK(release(words) == CUDA_ERROR_INVALID_VALUE);

  std::vector<char> own(8192);
  REQUIRE(pin(own.data(), own.size(), 0) == CUDA_SUCCESS);
  CHECK(pin(own.data() + 4096, 100, 0) == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  if (!Driver::is_real()) CHECK(device_pointer(&address, own.data(), 0) == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(unpin(own.data()) == CUDA_SUCCESS);
  CHECK(unpin(own.data()) == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

TEST_CASE("an address knows its allocation", "[driver]") {
  Driver& cu = Driver::of("h200");
  Buffer memory(cu, 512);
  CUdeviceptr base = 0;
  size_t bytes = 0;
  REQUIRE(cu.cuMemGetAddressRange_v2(&base, &bytes, memory.address() + 100) == CUDA_SUCCESS);
  CHECK(base == memory.address());
  CHECK(bytes == 512);
  CHECK(cu.cuMemGetAddressRange_v2(&base, &bytes, kNowhere) == CUDA_ERROR_NOT_FOUND);
  unsigned type = 0;
  REQUIRE(cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory.address()) ==
          CUDA_SUCCESS);
  CHECK(type == CU_MEMORYTYPE_DEVICE);
  CHECK(cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                 reinterpret_cast<CUdeviceptr>(&type)) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("allocated memory is missing from the free memory", "[driver][emulator-only]") {
  Driver& cu = Driver::of("b200");
  size_t free = 0, total = 0, device_total = 0;
  cu.cuDeviceTotalMem_v2(&device_total, 0);
  Buffer memory(cu, 256 << 20);
  REQUIRE(cu.cuMemGetInfo_v2(&free, &total) == CUDA_SUCCESS);
  CHECK(total == device_total);
  CHECK(free <= total - (256 << 20));  // less still where this machine has not that much
}

TEST_CASE("streams are created, waited for and destroyed; default streams are not destroyed", "[driver]") {
  Driver& cu = Driver::of("h200");
  CUstream stream = nullptr;
  CHECK(cu.cuStreamCreate(&stream, 8) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  Buffer memory(cu, 64);
  CHECK(cu.cuMemsetD32Async(memory.address(), 5, 16, stream) == CUDA_SUCCESS);
  CHECK(cu.cuStreamSynchronize(stream) == CUDA_SUCCESS);
  CHECK(memory.read<uint32_t>() == std::vector<uint32_t>(16, 5));
  CHECK(cu.cuStreamSynchronize(CU_STREAM_LEGACY) == CUDA_SUCCESS);
  CHECK(cu.cuStreamSynchronize(CU_STREAM_PER_THREAD) == CUDA_SUCCESS);
  CHECK(cu.cuStreamDestroy_v2(stream) == CUDA_SUCCESS);
  CHECK(cu.cuStreamDestroy_v2(nullptr) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("a stale stream handle is recognised", "[driver][emulator-only]") {  // a real driver crashes
  Driver& cu = Driver::of("b200");
  CUstream stream = nullptr;
  REQUIRE(cu.cuStreamCreate(&stream, 0) == CUDA_SUCCESS);
  cu.cuStreamDestroy_v2(stream);
  CHECK(cu.cuStreamSynchronize(stream) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("elapsed time needs two recorded events with timing", "[driver]") {
  Driver& cu = Driver::of("h200");
  CUevent start = nullptr, end = nullptr, silent = nullptr;
  CHECK(cu.cuEventCreate(&start, 128) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(cu.cuEventCreate(&start, 0) == CUDA_SUCCESS);
  REQUIRE(cu.cuEventCreate(&end, 0) == CUDA_SUCCESS);
  REQUIRE(cu.cuEventCreate(&silent, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  float milliseconds = -1;
  CHECK(cu.cuEventElapsedTime_v2(&milliseconds, start, end) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cu.cuEventQuery(start) == CUDA_SUCCESS);  // never recorded counts as complete
  for (CUevent event : {start, end, silent}) CHECK(cu.cuEventRecord(event, nullptr) == CUDA_SUCCESS);
  CHECK(cu.cuEventSynchronize(end) == CUDA_SUCCESS);
  CHECK(cu.cuEventElapsedTime_v2(&milliseconds, start, end) == CUDA_SUCCESS);
  CHECK(milliseconds >= 0);
  CHECK(cu.cuEventSynchronize(silent) == CUDA_SUCCESS);
  CHECK(cu.cuEventElapsedTime_v2(&milliseconds, start, silent) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cu.cuStreamWaitEvent(nullptr, start, 0) == CUDA_SUCCESS);
  CHECK(cu.cuStreamWaitEvent(nullptr, start, 4) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cu.cuStreamWaitEvent(nullptr, nullptr, 0) == CUDA_ERROR_INVALID_HANDLE);
  for (CUevent event : {start, end, silent}) CHECK(cu.cuEventDestroy_v2(event) == CUDA_SUCCESS);
  CHECK(cu.cuEventDestroy_v2(nullptr) == CUDA_ERROR_INVALID_HANDLE);
}
