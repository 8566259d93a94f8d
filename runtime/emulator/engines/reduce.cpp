// Reductions of bulk copies.
#include "engines/reduce.hpp"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "engines/small_floats.hpp"

namespace mxfa::emulator {
namespace {

// f32 additions of bulk reductions flush subnormal inputs and results to signed zero (PTX ISA 9.7.9.25.4.2);
// those of tensor copies do so for a map of type FLOAT32_FTZ alone (an H200's answer).  Any NaN gives the
// canonical one.
float canonical(float x) { return x == x ? x : std::bit_cast<float>(0x7fffffffu); }
float flush(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  return (u & 0x7f800000) == 0 ? std::bit_cast<float>(u & 0x80000000) : x;
}

// PTX min/max: one NaN loses, both NaN give NaN, +0 > -0.
float minimum(float a, float b) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  if (a == 0 && b == 0) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
float maximum(float a, float b) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  if (a == 0 && b == 0) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}

template <class T>
T integer(ReduceOp op, T r, T s) {
  using U = std::make_unsigned_t<T>;
  switch (op) {
    case ReduceOp::Add:
      return static_cast<T>(static_cast<U>(r) + static_cast<U>(s));
    case ReduceOp::Min:
      return r < s ? r : s;
    case ReduceOp::Max:
      return r > s ? r : s;
    case ReduceOp::Inc:
      return r >= s ? T{0} : static_cast<T>(r + 1);
    case ReduceOp::Dec:
      return r == 0 || r > s ? s : static_cast<T>(r - 1);
    case ReduceOp::And:
      return r & s;
    case ReduceOp::Or:
      return r | s;
    case ReduceOp::Xor:
      return r ^ s;
    case ReduceOp::None:
      break;
  }
  return s;
}

// Sums of two f16 or bf16 values rounded to float first round to 16 bits as the exact sum would: 24 >= 2 * 11
// + 2.
float floating(ReduceOp op, float r, float s) {
  return op == ReduceOp::Add ? r + s : op == ReduceOp::Min ? minimum(r, s) : maximum(r, s);
}

template <class T, class F>
void each(uint8_t* destination, const uint8_t* source, uint64_t bytes, F combine) {
  for (uint64_t at = 0; at + sizeof(T) <= bytes; at += sizeof(T)) {
    T r, s;
    std::memcpy(&r, destination + at, sizeof(T));
    std::memcpy(&s, source + at, sizeof(T));
    r = combine(r, s);
    std::memcpy(destination + at, &r, sizeof(T));
  }
}

const char* type_name(ReduceType type) {
  static constexpr const char* kNames[] = {"none", "u32",  "s32", "u64", "s64",
                                           "f16",  "bf16", "f32", "f64", "f32"};
  return kNames[static_cast<int>(type)];
}

}  // namespace

const char* reduce_name(ReduceOp op) {
  static constexpr const char* kNames[] = {"none", "add", "min", "max", "inc", "dec", "and", "or", "xor"};
  return kNames[static_cast<int>(op)];
}

int reduce_type_bytes(ReduceType type) {
  switch (type) {
    case ReduceType::F16:
    case ReduceType::BF16:
      return 2;
    case ReduceType::U64:
    case ReduceType::S64:
    case ReduceType::F64:
      return 8;
    default:
      return 4;
  }
}

std::string reduce_check(ReduceOp op, ReduceType type) {
  const bool is_float = type >= ReduceType::F16;
  bool exists = type != ReduceType::None;
  switch (op) {
    case ReduceOp::Add:
      break;
    case ReduceOp::Min:
    case ReduceOp::Max:
      exists &= type != ReduceType::F32 && type != ReduceType::F32Subnormal && type != ReduceType::F64;
      break;
    case ReduceOp::Inc:
    case ReduceOp::Dec:
      exists &= type == ReduceType::U32;
      break;
    case ReduceOp::And:
    case ReduceOp::Or:
    case ReduceOp::Xor:
      exists &= !is_float;
      break;
    case ReduceOp::None:
      exists = false;
      break;
  }
  return exists
             ? ""
             : fmt::format("bulk reduction {} does not exist for type {}", reduce_name(op), type_name(type));
}

ReduceType reduce_type_of(TensorType type) {
  switch (type) {
    case TensorType::U32:
      return ReduceType::U32;
    case TensorType::S32:
      return ReduceType::S32;
    case TensorType::U64:
      return ReduceType::U64;
    case TensorType::S64:
      return ReduceType::S64;
    case TensorType::F16:
      return ReduceType::F16;
    case TensorType::BF16:
      return ReduceType::BF16;
    case TensorType::F32:
      return ReduceType::F32Subnormal;
    case TensorType::F32Ftz:
      return ReduceType::F32;
    case TensorType::F64:
      return ReduceType::F64;
    default:
      return ReduceType::None;
  }
}

void reduce_elements(ReduceOp op, ReduceType type, uint8_t* destination, const uint8_t* source,
                     uint64_t bytes) {
  switch (type) {
    case ReduceType::U32:
      return each<uint32_t>(destination, source, bytes, [op](auto r, auto s) { return integer(op, r, s); });
    case ReduceType::S32:
      return each<int32_t>(destination, source, bytes, [op](auto r, auto s) { return integer(op, r, s); });
    case ReduceType::U64:
      return each<uint64_t>(destination, source, bytes, [op](auto r, auto s) { return integer(op, r, s); });
    case ReduceType::S64:
      return each<int64_t>(destination, source, bytes, [op](auto r, auto s) { return integer(op, r, s); });
    case ReduceType::F32:
      return each<float>(destination, source, bytes,
                         [](float r, float s) { return canonical(flush(flush(r) + flush(s))); });
    case ReduceType::F32Subnormal:
      return each<float>(destination, source, bytes, [](float r, float s) { return canonical(r + s); });
    case ReduceType::F64:
      return each<double>(destination, source, bytes, [](double r, double s) { return r + s; });
    case ReduceType::F16:
      return each<uint16_t>(destination, source, bytes, [op](uint16_t r, uint16_t s) {
        return float_to_f16(floating(op, f16_to_float(r), f16_to_float(s)));
      });
    case ReduceType::BF16:
      return each<uint16_t>(destination, source, bytes, [op](uint16_t r, uint16_t s) {
        return float_to_bf16(floating(op, bf16_to_float(r), bf16_to_float(s)));
      });
    case ReduceType::None:
      break;
  }
}

}  // namespace mxfa::emulator
