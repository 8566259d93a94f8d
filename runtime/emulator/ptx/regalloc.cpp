// Register allocation by live range.  Lanes are independent columns, so the liveness of a single thread
// decides: a write never touches inactive lanes.  A range covers everything from its first to its last live
// micro-operation; source and destination of one micro-operation never share a row, so handlers may read and
// write lane by lane in any order.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "ptx/lower.hpp"

namespace mxfa::emulator::ptx {
namespace {

struct Interval {
  uint32_t reg = 0, begin = 0xffffffffu, end = 0;
};

class Bits {
 public:
  explicit Bits(size_t n) : words_((n + 63) / 64) {}
  bool test(size_t i) const { return words_[i / 64] >> (i % 64) & 1; }
  void set(size_t i) { words_[i / 64] |= uint64_t{1} << (i % 64); }
  std::vector<uint64_t>& words() { return words_; }

 private:
  std::vector<uint64_t> words_;
};

// Lowest free unit first.
class Pool {
 public:
  uint32_t take() {
    while (low_ < used_.size() && used_[low_]) ++low_;
    if (low_ == used_.size()) used_.push_back(0);
    used_[low_] = 1;
    return low_++;
  }
  void give(uint32_t unit) {
    used_[unit] = 0;
    low_ = std::min(low_, unit);
  }
  uint32_t size() const { return static_cast<uint32_t>(used_.size()); }

 private:
  uint32_t low_ = 0;
  std::vector<uint8_t> used_;
};

uint32_t MicroOp::*field(Reference::Field f) {
  switch (f) {
    case Reference::Field::Dst:
      return &MicroOp::dst;
    case Reference::Field::Dst2:
      return &MicroOp::dst2;
    case Reference::Field::Guard:
      return &MicroOp::guard;
    default:
      return nullptr;
  }
}

}  // namespace

AllocationResult allocate_registers(const AllocationInput& in) {
  const size_t registers = in.virtuals.size();
  const size_t blocks = in.cfg.blocks.size();

  // References of a block are contiguous: they are sorted by micro-operation.
  std::vector<size_t> first_reference(blocks + 1);
  for (size_t b = 0, r = 0; b <= blocks; ++b) {
    while (r < in.references.size() && in.references[r].op < in.block_start[b]) ++r;
    first_reference[b] = r;
  }
  first_reference[blocks] = in.references.size();

  // Registers whose every use follows a full definition in the same block need no data flow; the others get a
  // dense number.
  std::vector<int32_t> owner(registers, -1),
      dense(registers, -1);                               // owner: the only block seen so far, -2: several
  std::vector<uint32_t> defined(registers, 0xffffffffu);  // block + 1 of the last full definition
  std::vector<uint32_t> dense_registers;
  const auto make_dense = [&](uint32_t reg) {
    if (dense[reg] < 0)
      dense[reg] = static_cast<int32_t>(dense_registers.size()), dense_registers.push_back(reg);
  };
  // A guarded definition keeps the old value in other lanes of the mask: it reads as well.
  std::vector<uint8_t> guarded;
  guarded.resize(in.code.size() - in.first_op);
  for (const Reference& r : in.references)
    if (r.field == Reference::Field::Guard) guarded[r.op - in.first_op] = 1;
  const auto kills = [&](const Reference& r) { return r.def && !guarded[r.op - in.first_op]; };

  for (size_t b = 0; b < blocks; ++b) {
    for (size_t k = first_reference[b]; k < first_reference[b + 1];) {
      size_t end = k;
      while (end < first_reference[b + 1] && in.references[end].op == in.references[k].op) ++end;
      for (size_t r = k; r < end; ++r) {  // reads first
        const Reference& ref = in.references[r];
        if (owner[ref.reg] == -1)
          owner[ref.reg] = static_cast<int32_t>(b);
        else if (owner[ref.reg] != static_cast<int32_t>(b))
          make_dense(ref.reg);
        if (!kills(ref) && defined[ref.reg] != b) make_dense(ref.reg);
      }
      for (size_t r = k; r < end; ++r)
        if (kills(in.references[r])) defined[in.references[r].reg] = static_cast<uint32_t>(b);
      k = end;
    }
  }

  // Backward data flow over the dense registers.
  const size_t n = dense_registers.size();
  // Four sets a block: what real kernels need is a few megabytes.
  if ((n + 63) / 64 * blocks > (size_t{1} << 25))
    throw std::length_error(fmt::format("{} registers that live across {} basic blocks", n, blocks));
  std::vector<Bits> live_in(blocks, Bits(n)), uses(blocks, Bits(n)), defs(blocks, Bits(n));
  for (size_t b = 0; b < blocks; ++b)
    for (size_t k = first_reference[b]; k < first_reference[b + 1];) {
      size_t end = k;
      while (end < first_reference[b + 1] && in.references[end].op == in.references[k].op) ++end;
      for (size_t r = k; r < end; ++r) {
        const Reference& ref = in.references[r];
        const int32_t d = dense[ref.reg];
        if (d >= 0 && !kills(ref) && !defs[b].test(d)) uses[b].set(d);
      }
      for (size_t r = k; r < end; ++r) {
        const int32_t d = dense[in.references[r].reg];
        if (d >= 0 && kills(in.references[r])) defs[b].set(d);
      }
      k = end;
    }
  std::vector<Bits> live_out(blocks, Bits(n));
  const size_t words = (n + 63) / 64;
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t b = blocks; b-- > 0;) {
      auto& out = live_out[b].words();
      for (const int32_t s : in.cfg.blocks[b].successors)
        if (s < static_cast<int32_t>(blocks))
          for (size_t w = 0; w < words; ++w) out[w] |= live_in[s].words()[w];
      auto& live = live_in[b].words();
      for (size_t w = 0; w < words; ++w) {
        const uint64_t next = uses[b].words()[w] | (out[w] & ~defs[b].words()[w]);
        if (next != live[w]) live[w] = next, changed = true;
      }
    }
  }

  // Intervals over micro-operations.
  std::vector<Interval> intervals(registers);
  for (uint32_t r = 0; r < registers; ++r) intervals[r].reg = r;
  const auto cover = [&](uint32_t reg, uint32_t op) {
    intervals[reg].begin = std::min(intervals[reg].begin, op);
    intervals[reg].end = std::max(intervals[reg].end, op);
  };
  for (const Reference& r : in.references) cover(r.reg, r.op);
  for (size_t b = 0; b < blocks; ++b) {
    const uint32_t begin = in.block_start[b],
                   end = in.block_start[b + 1] - (in.block_start[b + 1] > begin ? 1 : 0);
    for (size_t w = 0; w < words; ++w) {
      for (uint64_t bits = live_in[b].words()[w]; bits; bits &= bits - 1)
        cover(dense_registers[w * 64 + std::countr_zero(bits)], begin);
      for (uint64_t bits = live_out[b].words()[w]; bits; bits &= bits - 1)
        cover(dense_registers[w * 64 + std::countr_zero(bits)], end);
    }
  }

  // Linear scan, one pool a width: a lane of a 64-bit register covers the columns of two lanes of its rows,
  // so rows must not change width while other lanes still hold values in them.
  std::vector<Interval> order;
  for (const Interval& i : intervals)
    if (i.begin != 0xffffffffu) order.push_back(i);
  std::sort(order.begin(), order.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  std::vector<uint32_t> place(registers, 0);
  Pool pools[4];
  const auto pool_of = [&](uint32_t reg) {
    const Virtual& v = in.virtuals[reg];
    return v.predicate ? 0 : v.rows == 1 ? 1 : v.rows == 2 ? 2 : 3;
  };
  const auto later = [](const Interval& a, const Interval& b) { return a.end > b.end; };
  std::vector<Interval> active;  // heap by end
  for (const Interval& i : order) {
    while (!active.empty() && active.front().end < i.begin) {
      std::pop_heap(active.begin(), active.end(), later);
      const uint32_t reg = active.back().reg;
      active.pop_back();
      pools[pool_of(reg)].give(place[reg]);
    }
    place[i.reg] = pools[pool_of(i.reg)].take();
    active.push_back(i);
    std::push_heap(active.begin(), active.end(), later);
  }
  const uint32_t pairs = in.first_row + pools[1].size(), quads = pairs + 2 * pools[2].size();
  const uint32_t rows = quads + 4 * pools[3].size(), predicates = in.first_predicate + pools[0].size();
  for (const Interval& i : order) {
    uint32_t& p = place[i.reg];
    switch (pool_of(i.reg)) {
      case 0:
        p += in.first_predicate;
        break;
      case 1:
        p += in.first_row;
        break;
      case 2:
        p = pairs + 2 * p;
        break;
      default:
        p = quads + 4 * p;
        break;
    }
  }

  for (const Reference& r : in.references) {
    MicroOp& op = in.code[r.op];
    const bool predicate = in.virtuals[r.reg].predicate;
    if (r.field == Reference::Field::List) {
      if (r.list != ~0u) in.lists[r.list] = place[r.reg];
    } else if (uint32_t MicroOp::*member = field(r.field)) {
      op.*member = place[r.reg];
    } else {
      const int k = static_cast<int>(r.field) - static_cast<int>(Reference::Field::Src0);
      // A predicate source keeps its negation in bit 0.
      op.src[k] = predicate ? (place[r.reg] << 1) | (op.src[k] & 1) : place[r.reg];
    }
  }
  return {rows, predicates};
}

}  // namespace mxfa::emulator::ptx
