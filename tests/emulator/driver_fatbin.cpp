// Fatbins: which entry is taken, compression, and when kernels are lowered.
#include <algorithm>

#include "driver_table.hpp"
#include "fatbin.hpp"
#include "support/catch.hpp"

using mxfa::test::Driver;
using mxfa::test::fatbin;
using mxfa::test::FatbinEntry;
using mxfa::test::FatbinWrapper;
using mxfa::test::mentions;
using mxfa::test::ptx_header;
using mxfa::test::ptx_kernel;

namespace {

const std::string kMachineCode = std::string("\x7f") + "ELF" + std::string(60, 0);

// Loads a fatbin and asks for one of its kernels.
CUresult load(Driver& cu, const std::string& image, const char* kernel) {
  FatbinWrapper wrapper;
  wrapper.data = image.data();
  CUmodule module = nullptr;
  if (const CUresult code = cu.cuModuleLoadData(&module, &wrapper)) return code;
  CUfunction function = nullptr;
  const CUresult code = cu.cuModuleGetFunction(&function, module, kernel);
  cu.cuModuleUnload(module);
  return code;
}

std::string module_of(const char* target, const char* kernel) {
  return ptx_header(target, "8.8") + ptx_kernel(kernel, "", "");
}

// LZ4 block format: token, literals, distance, with the longest match found by trying all.
std::string lz4(const std::string& text) {
  std::string out;
  const auto length = [&](size_t value) {  // what a nibble of 15 leaves over
    for (; value >= 255; value -= 255) out += '\xff';
    out += static_cast<char>(value);
  };
  size_t at = 0, start = 0;
  const auto sequence = [&](size_t match, size_t distance) {
    const size_t literals = at - start;
    const size_t rest = match ? match - 4 : 0;
    out += static_cast<char>(std::min<size_t>(literals, 15) << 4 | std::min<size_t>(rest, 15));
    if (literals >= 15) length(literals - 15);
    out.append(text, start, literals);
    if (!match) return;
    out += static_cast<char>(distance & 255);
    out += static_cast<char>(distance >> 8);
    if (rest >= 15) length(rest - 15);
  };
  while (at < text.size()) {
    size_t best = 0, distance = 0;
    for (size_t from = 0; from < at; ++from) {
      size_t n = 0;
      while (at + n < text.size() && text[from + n] == text[at + n]) ++n;
      if (n > best) best = n, distance = at - from;
    }
    if (best < 4) {
      ++at;
      continue;
    }
    sequence(best, distance);
    start = at += best;
  }
  sequence(0, 0);
  return out;
}

// A zstd frame of one raw block (RFC 8878): single segment, 4-byte content size.
std::string zstd(const std::string& text) {
  std::string out = "\x28\xb5\x2f\xfd\xa0";
  for (int i = 0; i < 4; ++i) out += static_cast<char>(text.size() >> (8 * i));
  const uint32_t block = 1 | static_cast<uint32_t>(text.size()) << 3;
  for (int i = 0; i < 3; ++i) out += static_cast<char>(block >> (8 * i));
  return out + text;
}

}  // namespace

TEST_CASE("a fatbin gives the newest PTX the device can run", "[driver][emulator-only]") {
  Driver& cu = Driver::of("b200");
  const std::string image = fatbin({{FatbinEntry::Ptx, 90, module_of("sm_90", "old")},
                                    {FatbinEntry::Ptx, 100, module_of("sm_100", "plain")},
                                    {FatbinEntry::Ptx, 100, module_of("sm_100a", "right")},
                                    {FatbinEntry::Ptx, 103, module_of("sm_103a", "other_device")},
                                    {FatbinEntry::MachineCode, 100, kMachineCode}});
  CHECK(load(cu, image, "right") == CUDA_SUCCESS);
  CHECK(load(cu, image, "old") == CUDA_ERROR_NOT_FOUND);
}

TEST_CASE("a fatbin without PTX to run is refused by what it holds", "[driver][emulator-only]") {
  Driver& cu = Driver::of("b200");
  CHECK(load(cu, fatbin({{FatbinEntry::MachineCode, 100, kMachineCode}}), "k") ==
        CUDA_ERROR_NO_BINARY_FOR_GPU);
  CHECK(mentions(cu.last_report(), {"machine code for sm_100", "compute_100a"}));
}

TEST_CASE("compressed PTX of a fatbin is read", "[driver][emulator-only]") {
  Driver& cu = Driver::of("b200");
  // Runs of one byte, long literals and long matches: overlapping copies and continued lengths.
  const std::string text = module_of("sm_100a", "k") + "// " + std::string(700, '=') +
                           " 0123456789abcdefghijklmnopqrstuvwxyz\n" + "//" + std::string(30, '-') + "\n";
  const std::string block = lz4(text);
  CHECK(block.size() < text.size() / 2);
  CHECK(load(cu, fatbin({{FatbinEntry::Ptx, 100, block, FatbinEntry::Lz4, text.size()}}), "k") ==
        CUDA_SUCCESS);
  CHECK(load(cu, fatbin({{FatbinEntry::Ptx, 100, zstd(text), FatbinEntry::Zstd, text.size()}}), "k") ==
        CUDA_SUCCESS);
}

TEST_CASE("damaged compressed PTX is refused", "[driver][emulator-only]") {
  Driver& cu = Driver::of("b200");
  const std::string text = module_of("sm_100a", "k");
  for (const auto compression : {FatbinEntry::Lz4, FatbinEntry::Zstd}) {
    const std::string good = compression == FatbinEntry::Lz4 ? lz4(text) : zstd(text);
    for (size_t bytes = 0; bytes < good.size(); ++bytes) {
      const std::string cut = good.substr(0, bytes);
      REQUIRE(load(cu, fatbin({{FatbinEntry::Ptx, 100, cut, compression, text.size()}}), "k") ==
              CUDA_ERROR_INVALID_IMAGE);
    }
    CHECK(load(cu, fatbin({{FatbinEntry::Ptx, 100, good, compression, text.size() - 1}}), "k") ==
          CUDA_ERROR_INVALID_IMAGE);
    CHECK(mentions(cu.last_report(), {"damaged"}));
  }
}

TEST_CASE("a kernel of a fatbin is lowered when it is asked for", "[driver][emulator-only]") {
  Driver& cu = Driver::of("b200");
  const std::string ptx = ptx_header("sm_100a", "8.8") + ptx_kernel("good", "", "") +
                          ptx_kernel("bad", "", "  .reg .b32 %r<2>;\n  add.frob.u32 %r1, %r1, %r1;");
  const std::string image = fatbin({{FatbinEntry::Ptx, 100, ptx}});
  CHECK(load(cu, image, "good") == CUDA_SUCCESS);
  CHECK(load(cu, image, "bad") == CUDA_ERROR_INVALID_PTX);
  CHECK(mentions(cu.last_report(), {"frob", "line"}));
  CUmodule module = nullptr;
  CHECK(cu.cuModuleLoadData(&module, ptx.c_str()) == CUDA_ERROR_INVALID_PTX);  // as text: at once
}
