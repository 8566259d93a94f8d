// Carry chains, lop3, predicate logic and dot products (PTX ISA 9.7.1.23, 9.7.2, 9.7.8).
#include "core/exec.hpp"
#include "core/handlers.hpp"
#include "core/lane_integer.hpp"

namespace mxfa::emulator {
namespace {

// add.cc, addc, sub.cc, subc, mad.cc, madc: imm selects (0 add, 1 sub, 2 mad.lo, 3 mad.hi); flags: carry in,
// carry out.
template <class T>
Step with_carry(Exec& x, const MicroOp& op) {
  const auto* a = lanes<T>(x.src(op.src[0]));
  const auto* b = lanes<T>(x.src(op.src[1]));
  const auto* c = lanes<T>(x.src(op.imm >= 2 ? op.src[2] : op.src[1]));
  const bool in = op.aux & 1, out = op.aux & 2;
  const uint32_t carry = in ? x.pred(op.src[3]) : 0;
  auto* d = lanes<T>(x.dst(op.dst));
  uint32_t carries = 0;
  for (int i = 0; i < kLanes; ++i) {
    if (!(x.mask >> i & 1)) continue;
    using W = unsigned __int128;
    const W k = carry >> i & 1;
    W sum;
    if (op.imm == 1) {
      // subc subtracts the borrow; CC.CF holds the borrow-out.
      sum = static_cast<W>(a[i]) - b[i] - k;
    } else {
      const W product = static_cast<W>(a[i]) * b[i];
      const T term = op.imm == 0 ? b[i] : static_cast<T>(op.imm == 2 ? product : product >> kBits<T>);
      sum = static_cast<W>(op.imm == 0 ? a[i] : c[i]) + term + k;
    }
    carries |= static_cast<uint32_t>(sum >> kBits<T> & 1) << i;
    d[i] = static_cast<T>(sum);
  }
  if (out) x.set_pred(op.dst2, carries);
  return Step::Continue;
}
template <class T>
Step with_carry_signed_high(Exec& x, const MicroOp& op) {  // mad.hi on signed operands
  using S = std::make_signed_t<T>;
  const auto* a = lanes<T>(x.src(op.src[0]));
  const auto* b = lanes<T>(x.src(op.src[1]));
  const auto* c = lanes<T>(x.src(op.src[2]));
  const uint32_t carry = op.aux & 1 ? x.pred(op.src[3]) : 0;
  auto* d = lanes<T>(x.dst(op.dst));
  uint32_t carries = 0;
  for (int i = 0; i < kLanes; ++i) {
    if (!(x.mask >> i & 1)) continue;
    const T term = static_cast<T>(high_mul<S>(static_cast<S>(a[i]), static_cast<S>(b[i])));
    const unsigned __int128 sum = static_cast<unsigned __int128>(term) + c[i] + (carry >> i & 1);
    carries |= static_cast<uint32_t>(sum >> kBits<T> & 1) << i;
    d[i] = static_cast<T>(sum);
  }
  if (op.aux & 2) x.set_pred(op.dst2, carries);
  return Step::Continue;
}

// d = F(a, b, c) with F given by its truth table: bit k of the table is F for a = k>>2, b = k>>1, c = k
// (PTX 9.7.8.6).
inline uint32_t lookup(uint32_t table, uint32_t a, uint32_t b, uint32_t c) {
  const auto all = [table](int k) { return 0u - (table >> k & 1); };
  const uint32_t c0 = (~c & all(0)) | (c & all(1)), c1 = (~c & all(2)) | (c & all(3));
  const uint32_t c2 = (~c & all(4)) | (c & all(5)), c3 = (~c & all(6)) | (c & all(7));
  const uint32_t b0 = (~b & c0) | (b & c1), b1 = (~b & c2) | (b & c3);
  return (~a & b0) | (a & b1);
}

template <bool kPredicate>
Step lop3_lanes(Exec& x, const MicroOp& op) {
  const auto* a = x.src(op.src[0]).lane;
  const auto* b = x.src(op.src[1]).lane;
  const auto* c = x.src(op.src[2]).lane;
  const uint32_t table = op.aux;
  Row result;
  for_lanes<uint32_t>(kFullMask, lanes<uint32_t>(result),
                      [=](int i) { return lookup(table, a[i], b[i], c[i]); });
  if (kPredicate) {
    const uint32_t nonzero = mask_lanes(x.mask, [&](int i) { return result.lane[i] != 0; });
    const uint32_t q = x.pred(op.src[3]);
    x.set_pred(op.dst2, op.imm ? nonzero & q : nonzero | q);
  }
  const auto* r = lanes<uint32_t>(result);
  for_lanes<uint32_t>(x.mask, lanes<uint32_t>(x.dst(op.dst)), [=](int i) { return r[i]; });
  return Step::Continue;
}

template <class F>
Step predicate_logic(Exec& x, const MicroOp& op) {
  x.set_pred(op.dst, F{}(x.pred(op.src[0]), x.pred(op.src[1])));
  return Step::Continue;
}
template <class F>
Handler predicates(F) {
  return &predicate_logic<F>;
}

template <bool kTwo, bool kASigned, bool kBSigned, bool kHigh>
uint32_t dot(uint32_t a, uint32_t b, uint32_t c) {
  int64_t sum = 0;
  for (int k = 0; k < (kTwo ? 2 : 4); ++k) {
    const uint32_t u = kTwo ? a >> (16 * k) & 0xffff : a >> (8 * k) & 0xff;
    const uint32_t v = b >> (8 * (k + (kTwo && kHigh ? 2 : 0))) & 0xff;
    const int64_t p =
        kASigned ? (kTwo ? static_cast<int16_t>(u) : static_cast<int8_t>(u)) : static_cast<int64_t>(u);
    const int64_t q = kBSigned ? static_cast<int8_t>(v) : static_cast<int64_t>(v);
    sum += p * q;
  }
  return c + static_cast<uint32_t>(sum);
}
template <bool kTwo, bool kHigh>
Handler dot_by_sign(bool a_signed, bool b_signed) {
  if (a_signed)
    return b_signed
               ? alu([](uint32_t a, uint32_t b, uint32_t c) { return dot<kTwo, true, true, kHigh>(a, b, c); })
               : alu([](uint32_t a, uint32_t b, uint32_t c) {
                   return dot<kTwo, true, false, kHigh>(a, b, c);
                 });
  return b_signed
             ? alu([](uint32_t a, uint32_t b, uint32_t c) { return dot<kTwo, false, true, kHigh>(a, b, c); })
             : alu([](uint32_t a, uint32_t b, uint32_t c) {
                 return dot<kTwo, false, false, kHigh>(a, b, c);
               });
}

}  // namespace

namespace handlers {

Handler carry(std::string_view op, Type type) {
  const bool wide = ptx::bits(type) == 64;
  if (op == "mad.hi" && ptx::is_signed(type))
    return wide ? &with_carry_signed_high<uint64_t> : &with_carry_signed_high<uint32_t>;
  return wide ? &with_carry<uint64_t> : &with_carry<uint32_t>;
}

Handler logic_predicate(std::string_view op) {
  if (op == "and") return predicates([](uint32_t a, uint32_t b) { return a & b; });
  if (op == "or") return predicates([](uint32_t a, uint32_t b) { return a | b; });
  if (op == "xor") return predicates([](uint32_t a, uint32_t b) { return a ^ b; });
  if (op == "not") return predicates([](uint32_t a, uint32_t) { return ~a; });
  return nullptr;
}

Handler lop3() { return &lop3_lanes<false>; }
Handler lop3_predicate() { return &lop3_lanes<true>; }

Handler dot_product(bool two_way, bool a_signed, bool b_signed, bool high) {
  if (!two_way) return dot_by_sign<false, false>(a_signed, b_signed);
  return high ? dot_by_sign<true, true>(a_signed, b_signed) : dot_by_sign<true, false>(a_signed, b_signed);
}

}  // namespace handlers
}  // namespace mxfa::emulator
