#include "driver_api/image.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>

#include "driver_api/driver.hpp"
#include "driver_api/fatbin.hpp"

namespace mxfa::emulator::driver_api {
namespace {

// ---- PTX text -----------------------------------------------------------------------------------------
// The text from `at` on, without white space and comments.
std::string_view skip_blanks(std::string_view text) {
  while (!text.empty()) {
    if (std::isspace(static_cast<unsigned char>(text[0]))) {
      text.remove_prefix(1);
    } else if (text.starts_with("//")) {
      text.remove_prefix(std::min(text.find('\n'), text.size()));
    } else if (text.starts_with("/*")) {
      const size_t end = text.find("*/", 2);
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 2);
    } else {
      break;
    }
  }
  return text;
}

std::string_view word(std::string_view& text) {
  text = skip_blanks(text);
  size_t length = 0;
  while (length < text.size() && !std::isspace(static_cast<unsigned char>(text[length])) &&
         text[length] != ',')
    ++length;
  const std::string_view result = text.substr(0, length);
  text.remove_prefix(length);
  return result;
}

struct PtxHeader {
  std::string_view version;  // empty: the text is no PTX
  std::string_view target;   // the first word after .target
};

// .version and .target are the first two directives (PTX ISA, "PTX Module Directives").
PtxHeader read_header(std::string_view text) {
  PtxHeader header;
  if (word(text) != ".version") return header;
  header.version = word(text);
  if (word(text) == ".target") header.target = word(text);
  return header;
}

PtxTarget parse_target(std::string_view word) {
  const std::string text(word);
  PtxTarget target;
  if (!text.starts_with("sm_")) return target;
  char* end = nullptr;
  target.number = static_cast<int>(std::strtol(text.c_str() + 3, &end, 10));
  target.suffix = *end;
  if ((*end && end[1]) || (*end && *end != 'a' && *end != 'f')) target.number = 0;
  return target;
}

constexpr int kNewestPtx = 9;  // major version; PTX 9.x belongs to CUDA 13

// "line L, column C", as errors of the parser have it.
std::string place_of(std::string_view word, std::string_view text) {
  const std::string_view before = text.substr(0, static_cast<size_t>(word.data() - text.data()));
  return fmt::format("line {}, column {}", 1 + std::count(before.begin(), before.end(), '\n'),
                     before.size() - before.rfind('\n'));  // npos + 1 is 0
}

void check_header(std::string_view text, const DeviceModel& device) {
  const PtxHeader header = read_header(text);
  if (header.version.empty()) {
    refuse(CUDA_ERROR_INVALID_IMAGE,
           "the image is neither PTX text (which starts with .version) nor a fatbin nor ELF");
  }
  if (std::atoi(std::string(header.version).c_str()) > kNewestPtx) {
    refuse(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "{}: .version {} is newer than {}.x",
           place_of(header.version, text), header.version, kNewestPtx);
  }
  const PtxTarget target = parse_target(header.target);
  if (target.number == 0) {
    refuse(CUDA_ERROR_INVALID_PTX, "{}: the PTX has no \".target sm_N\" after .version (found \"{}\")",
           place_of(header.target.data() ? header.target : header.version, text), header.target);
  }
  if (!runs_on(target, device)) {
    refuse(CUDA_ERROR_INVALID_PTX,
           "{}: PTX for {} does not run on {} (compute capability {}.{}): plain targets run on the same and "
           "newer devices, 'f' targets "
           "in their family, 'a' targets on that device alone; choose the device with MXFA_EMU_DEVICE or "
           "compile for sm_{}{}{}",
           place_of(header.target, text), header.target, device.name, device.major, device.minor,
           device.major, device.minor, device.major >= 9 ? "a" : "");
  }
}

uint32_t magic_of(const void* image) {
  uint32_t magic = 0;
  // A text may be shorter than the four bytes of a magic number: strncpy-like reading stops at its NUL.
  for (int i = 0; i < 4; ++i) {
    const uint8_t byte = static_cast<const uint8_t*>(image)[i];
    magic |= static_cast<uint32_t>(byte) << (8 * i);
    if (byte == 0) break;
  }
  return magic;
}

}  // namespace

PtxTarget target_of_ptx(std::string_view text) { return parse_target(read_header(text).target); }

bool runs_on(const PtxTarget& target, const DeviceModel& device) {
  const int number = device.major * 10 + device.minor;
  if (target.number <= 0) return false;
  if (target.suffix == 'a') return target.number == number;
  if (target.suffix == 'f') return target.number / 10 == device.major && target.number <= number;
  return target.number <= number;
}

bool is_fatbin_image(const void* image) { return is_fatbin(magic_of(image)); }

std::string ptx_of_image(const void* image, const DeviceModel& device) {
  const uint32_t magic = magic_of(image);
  if (is_fatbin(magic)) return ptx_of_fatbin(image, device);
  if (magic == 0x464c457f) {  // "\x7f" "ELF"
    refuse(CUDA_ERROR_NO_BINARY_FOR_GPU,
           "the image is a cubin (ELF machine code); the CPU driver runs PTX: load the PTX text, or build "
           "with -arch=compute_{}{}a",
           device.major, device.minor);
  }
  std::string text = static_cast<const char*>(image);
  check_header(text, device);
  return text;
}

}  // namespace mxfa::emulator::driver_api
