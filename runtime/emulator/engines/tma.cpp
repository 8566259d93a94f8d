// Tensor copies (PTX ISA 9.7.9.27): boxes of 1- to 5-dimensional tensors between global memory and a packed,
// possibly swizzled box in shared memory.  Each dimension is tested against its extent by itself, before any
// address is formed; addresses are computed mod 2^64, so that maps whose dimensions wrap on purpose (ragged
// maps) work, and every run of bytes really touched is checked against the allocations.
#include <cuda.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "engines/bulk.hpp"
#include "engines/engines.hpp"
#include "engines/reduce.hpp"
#include "memory/memory.hpp"
#include "memory/tensor_map.hpp"

namespace mxfa::emulator {
namespace {

[[noreturn]] void refuse(int code, const std::string& text) { throw Fault(code, "tensor copy: " + text); }

// A copy whose map has been read.
struct Box {
  TensorMap map;
  std::array<int32_t, 5> coordinates{};
  bool gather4 = false;
  // Units of the box (memory/tensor_map.hpp), in the other dimensions elements, after element strides.
  std::array<uint32_t, 5> count{1, 1, 1, 1, 1};
  TensorUnit unit{};
  uint32_t rows = 0, row_bytes = 0;  // in shared memory, gaps included
  // Moved, what an mbarrier counts: without the gaps, which CUTLASS and DeepGEMM do not expect either.
  uint32_t bytes = 0;
  // From row to row in shared memory.  A row narrower than its swizzle still takes the swizzle's span, whose
  // rest is left alone: not documented, an H200's answer (tests/silicon).
  uint32_t pitch = 0;
  uint32_t extent() const { return rows * pitch; }  // in shared memory
};

Box open(Warp& warp, const TensorCopy& copy) {
  Box box;
  box.map = load_tensor_map(*warp.cta->cluster->grid, copy.map);
  const TensorMap& map = box.map;
  box.coordinates = copy.coordinates;
  box.gather4 = copy.gather4;
  const int expected_rank = copy.gather4 ? 2 : copy.rank;
  if (map.rank != expected_rank)
    refuse(CUDA_ERROR_ILLEGAL_INSTRUCTION,
           fmt::format("the instruction addresses {} dimensions, the tensor map at {:#x} has {}",
                       expected_rank, copy.map, map.rank));
  box.unit = tensor_unit(map.type);
  const bool packed = box.unit.elements > 1;
  if (packed && !warp.cta->tensor_memory)
    refuse(CUDA_ERROR_ILLEGAL_INSTRUCTION,
           fmt::format("tensor maps of type {} need sm_100 or later", tensor_type_name(map.type)));
  for (int d = 0; d < map.rank; ++d)
    box.count[d] = (map.box[d] + map.element_strides[d] - 1u) / map.element_strides[d];
  box.count[0] /= box.unit.elements;
  if (copy.gather4) {  // PTX ISA 5.5.3.1: the box is one row, the instruction names four
    if (map.box[1] != 1)
      refuse(CUDA_ERROR_ILLEGAL_INSTRUCTION,
             fmt::format("gather4/scatter4 needs a box of one row, this one has {}", map.box[1]));
    box.count[1] = 4;
  }
  box.rows = box.count[1] * box.count[2] * box.count[3] * box.count[4];
  box.row_bytes = box.count[0] * box.unit.shared_bytes;
  box.pitch = map.swizzle == Swizzle::None ? box.row_bytes : swizzle_span(map.swizzle);
  box.bytes = box.rows * box.count[0] * box.unit.global_bytes;
  // Not in the PTX ISA; an H200 answers every other start, of loads and stores and with every swizzle, so.
  // Packed elements with gaps start at a multiple of 128 (PTX ISA 5.5.1).
  const bool gaps = box.unit.shared_bytes != box.unit.global_bytes;
  const uint32_t step = gaps ? 128 : 16 * box.unit.elements / box.unit.global_bytes;
  if (box.coordinates[0] % static_cast<int32_t>(step) != 0)
    refuse(
        CUDA_ERROR_ILLEGAL_INSTRUCTION,
        gaps ? fmt::format("coordinate 0 is {}: a multiple of 128 is needed", box.coordinates[0])
             : fmt::format("coordinate 0 is {}: rows must start at a multiple of 16 bytes, {} elements here",
                           box.coordinates[0], step));
  if (copy.shared % 128 != 0)
    refuse(CUDA_ERROR_MISALIGNED_ADDRESS,
           fmt::format("the shared address {:#x} is not a multiple of 128", copy.shared));
  return box;
}

std::string describe(const Box& box, const TensorCopy& copy) {
  std::string text = fmt::format("map {:#x} at (", copy.map);
  const int coordinates = box.gather4 ? 5 : box.map.rank;
  for (int d = 0; d < coordinates; ++d)
    text += fmt::format("{}{}", d ? ", " : "", box.coordinates[static_cast<size_t>(d)]);
  return text + ")";
}

// Calls row(offset in the packed box, address of the row's first inside unit, first and last+1 inside unit)
// for each row; a row without an inside unit has first == last.
template <class Row>
void for_each_row(const Box& box, Row row) {
  const TensorMap& map = box.map;
  const int64_t elements = box.unit.elements, c0 = box.coordinates[0] / elements;
  const int64_t low = std::clamp<int64_t>(-c0, 0, box.count[0]);
  const int64_t high =
      std::clamp<int64_t>(static_cast<int64_t>(map.dims[0]) / elements - c0, low, box.count[0]);
  uint32_t offset = 0;
  std::array<uint32_t, 5> i{};
  for (i[4] = 0; i[4] < box.count[4]; ++i[4])
    for (i[3] = 0; i[3] < box.count[3]; ++i[3])
      for (i[2] = 0; i[2] < box.count[2]; ++i[2])
        for (i[1] = 0; i[1] < box.count[1]; ++i[1]) {
          bool inside = high > low;
          uint64_t address = map.address + static_cast<uint64_t>(c0 + low) * box.unit.global_bytes;
          for (int d = 1; d < map.rank; ++d) {
            const int64_t at = box.gather4
                                   ? box.coordinates[1 + i[1]]
                                   : box.coordinates[d] + static_cast<int64_t>(i[d]) * map.element_strides[d];
            inside &= at >= 0 && at < static_cast<int64_t>(map.dims[d]);
            address += static_cast<uint64_t>(at) * map.strides[static_cast<size_t>(d) - 1];
          }
          row(offset, address, static_cast<uint32_t>(low), static_cast<uint32_t>(inside ? high : low));
          offset += box.row_bytes;
        }
}

// The value of elements outside the tensor.  The NaN of NAN_REQUEST_ZERO_FMA is not documented; an H200
// repeats 0x7ff7 in elements of every size.
void fill_row(const TensorMap& map, uint8_t* row, uint32_t bytes) {
  std::memset(row, 0, bytes);
  if (!map.nan_fill) return;
  const uint16_t nan = 0x7ff7;
  for (uint32_t at = 0; at < bytes; at += 2) std::memcpy(row + at, &nan, 2);
}

// A load rounds elements of both TF32 types to nearest, ties away; .._FTZ changes nothing (an H200's
// answers).
void round_row(TensorType type, uint8_t* row, uint32_t bytes) {
  if (type != TensorType::TF32 && type != TensorType::TF32Ftz) return;
  for (uint32_t at = 0; at < bytes; at += 4) {
    uint32_t v;
    std::memcpy(&v, row + at, 4);
    v = ((v & 0x7f800000) == 0x7f800000 ? v : v + 0x1000) & 0xffffe000;
    std::memcpy(row + at, &v, 4);
  }
}

// The bytes of global memory that a box covers; rows that follow each other become one.
void add_global(Touches& list, const Box& box, AccessKind kind) {
  for_each_row(box, [&](uint32_t, uint64_t address, uint32_t first, uint32_t last) {
    if (last == first) return;
    const uint32_t bytes = (last - first) * box.unit.global_bytes;
    if (Touch& back = list.back(); back.space == MemorySpace::Global && back.begin + back.count == address)
      back.count += bytes;
    else
      list.push_back(global_bytes(address, bytes, kind));
  });
}

// Between units with and without gaps.
void copy_units(const Box& box, uint8_t* target, uint32_t target_step, const uint8_t* source,
                uint32_t source_step, uint32_t units) {
  const uint32_t bytes = box.unit.global_bytes;
  if (target_step == bytes && source_step == bytes) {
    std::memcpy(target, source, size_t{units} * bytes);
    return;
  }
  for (uint32_t i = 0; i < units; ++i, target += target_step, source += source_step) {
    std::memcpy(target, source, bytes);
    std::memset(target + bytes, 0xff, target_step - bytes);  // the gap is undefined
  }
}

void load_box(Cluster& cluster, const Box& box, uint32_t destination) {
  Grid& grid = *cluster.grid;
  shared_range(cluster, destination, box.extent(), true);
  uint8_t* const base = cluster.ctas[shared_rank(destination)]->shared_base;
  const uint32_t start = shared_offset(destination), chunk = swizzle_chunk(box.map.swizzle);
  std::array<uint8_t, 256 * 8> row;
  for_each_row(box, [&](uint32_t offset, uint64_t address, uint32_t first, uint32_t last) {
    if (last - first != box.count[0]) fill_row(box.map, row.data(), box.row_bytes);
    if (last > first) {
      const uint32_t bytes = (last - first) * box.unit.global_bytes;
      uint8_t* const target = row.data() + first * box.unit.shared_bytes;
      copy_units(box, target, box.unit.shared_bytes, global_range(grid, address, bytes, false),
                 box.unit.global_bytes, last - first);
      round_row(box.map.type, target, bytes);
    }
    // The swizzle moves chunks inside one line of the destination, so the box stays within [start, start +
    // extent).
    for (uint32_t at = 0; at < box.row_bytes; at += chunk)
      std::memcpy(base + swizzle(box.map.swizzle, start + offset / box.row_bytes * box.pitch + at),
                  row.data() + at, chunk);
  });
}

void read_box(Cluster& cluster, const Box& box, uint32_t source, Buffer& buffer) {
  shared_range(cluster, source, box.extent(), false);
  const uint8_t* const base = cluster.ctas[shared_rank(source)]->shared_base;
  const uint32_t start = shared_offset(source), chunk = swizzle_chunk(box.map.swizzle);
  buffer.resize(box.rows * box.row_bytes);
  for (uint32_t at = 0; at < buffer.size(); at += chunk) {
    const uint32_t place = at / box.row_bytes * box.pitch + at % box.row_bytes;
    std::memcpy(buffer.data() + at, base + swizzle(box.map.swizzle, start + place), chunk);
  }
}

void write_box(Grid& grid, const Box& box, ReduceOp reduce, const Buffer& buffer) {
  const ReduceType type = reduce_type_of(box.map.type);
  for_each_row(box, [&](uint32_t offset, uint64_t address, uint32_t first, uint32_t last) {
    if (last == first) return;
    const uint32_t bytes = (last - first) * box.unit.global_bytes;
    uint8_t* target = global_range(grid, address, bytes, true);
    const uint8_t* source = buffer.data() + offset + first * box.unit.shared_bytes;
    if (reduce == ReduceOp::None)
      copy_units(box, target, box.unit.global_bytes, source, box.unit.shared_bytes, last - first);
    else
      reduce_elements(reduce, type, target, source, bytes);
  });
}

}  // namespace

void tma_load(Warp& warp, int lane, const TensorCopy& copy) {
  Cluster& cluster = *warp.cta->cluster;
  const Box box = open(warp, copy);
  if (box.map.type == TensorType::U6Align16 && box.map.swizzle == Swizzle::B128Atom64)  // cuda.h
    refuse(CUDA_ERROR_ILLEGAL_INSTRUCTION,
           "tensor maps of type 16U6_ALIGN16B with swizzle 128B_ATOM_64B are for stores only");
  for (const uint32_t destination : destinations(warp, copy.shared, copy.multicast)) {
    // Without cta_group::2 data and signal go to the same CTA.  With it the signal may go to either CTA of
    // the destination's pair: the one with the parity of the CTA that the mbarrier operand names.
    const uint32_t rank = shared_rank(destination);
    uint32_t barrier = copy.mbarrier;
    if (copy.multicast) {
      const uint32_t target = copy.cta_group == 2 ? (rank & ~1u) | (shared_rank(copy.mbarrier) & 1) : rank;
      barrier = target << kRankShift | shared_offset(copy.mbarrier);
    }
    const bool reachable =
        copy.cta_group == 2 ? shared_rank(barrier) >> 1 == rank >> 1 : shared_rank(barrier) == rank;
    if (!reachable)
      refuse(CUDA_ERROR_ILLEGAL_ADDRESS,
             fmt::format("the destination {:#x} and the mbarrier {:#x} lie in different {}", destination,
                         barrier,
                         copy.cta_group == 2 ? "CTA pairs"
                                             : "CTAs; only .cta_group::2 allows the other CTA of the pair"));
    cluster.grid->counters.tma_bytes += box.bytes;
    const std::string what = fmt::format("TMA load of {} to shared {:#x} by {}", describe(box, copy),
                                         destination, issuer(warp, lane));
    const uint64_t ticket =
        announce(warp, {0, AsyncKind::TensorLoad, lane, barrier, copy.cta_group == 2 ? 2 : 1}, [&] {
          Touches list{shared_bytes(destination, box.extent(), AccessKind::Write)};
          add_global(list, box, AccessKind::Read);
          return list;
        });
    submit_load(
        warp, what, destination, box.bytes, barrier,
        [&cluster, box, destination] { load_box(cluster, box, destination); }, ticket);
  }
}

void tma_store(Warp& warp, int lane, const TensorCopy& copy) {
  Cluster& cluster = *warp.cta->cluster;
  const Box box = open(warp, copy);
  if (shared_rank(copy.shared) != warp.cta->rank)
    refuse(CUDA_ERROR_ILLEGAL_ADDRESS,
           fmt::format("the source {:#x} of a store lies in CTA rank {}, but CTA rank {} issues it",
                       copy.shared, shared_rank(copy.shared), warp.cta->rank));
  const int coordinates = copy.gather4 ? 5 : box.map.rank;
  for (int d = 0; d < coordinates; ++d)
    if (box.coordinates[static_cast<size_t>(d)] < 0)  // PTX ISA 9.7.9.27.1.1
      refuse(CUDA_ERROR_ILLEGAL_INSTRUCTION,
             fmt::format("coordinate {} of a store is {}: starting coordinates towards global memory must "
                         "not be negative",
                         d, box.coordinates[static_cast<size_t>(d)]));
  if (box.map.type == TensorType::U4Align16)  // cuda.h, cuTensorMapEncodeTiled
    refuse(CUDA_ERROR_ILLEGAL_INSTRUCTION, "tensor maps of type 16U4_ALIGN16B are for loads only");
  if (copy.reduce != ReduceOp::None)
    if (const std::string error = reduce_check(copy.reduce, reduce_type_of(box.map.type)); !error.empty())
      refuse(CUDA_ERROR_ILLEGAL_INSTRUCTION,
             fmt::format("{} (tensor map of type {})", error, tensor_type_name(box.map.type)));
  shared_range(cluster, copy.shared, box.extent(), false);
  cluster.grid->counters.tma_bytes += box.bytes;
  if (cluster.events.overwrites_at_issue() && copy.reduce == ReduceOp::None)
    write_box(*cluster.grid, box, ReduceOp::None, Buffer(box.rows * box.row_bytes, 0xff));
  const std::string what = fmt::format("TMA {} of {} from shared {:#x} by {}",
                                       copy.reduce == ReduceOp::None ? "store" : reduce_name(copy.reduce),
                                       describe(box, copy), copy.shared, issuer(warp, lane));
  const uint64_t ticket = announce(warp, {0, AsyncKind::TensorStore, lane}, [&] {
    Touches list{shared_bytes(copy.shared, box.extent(), AccessKind::Read)};
    add_global(list, box, copy.reduce == ReduceOp::None ? AccessKind::Write : AccessKind::Atomic);
    return list;
  });
  submit_store(
      warp, lane, what,
      [&cluster, box, source = copy.shared](Buffer& buffer) { read_box(cluster, box, source, buffer); },
      [&grid = *cluster.grid, box, reduce = copy.reduce](const Buffer& buffer) {
        write_box(grid, box, reduce, buffer);
      },
      ticket);
}

void tma_prefetch(Warp& warp, int, const TensorCopy& copy) {
  TensorCopy checked = copy;
  checked.shared = 0;  // a prefetch has no shared operand
  open(warp, checked);
}

}  // namespace mxfa::emulator
