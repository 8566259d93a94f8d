// Tensor copies (TMA): every swizzle, element type and rank, boxes that hang over each side of the tensor,
// element strides, stores, reductions and multicast.  Tensors hold random bits, so a misplaced or changed
// byte shows. The innermost coordinate is a multiple of 16 bytes everywhere: the device faults at every
// other.
#include <algorithm>
#include <cstring>

#include "operands.hpp"
#include "pieces.hpp"

namespace mxfa::silicon {
namespace {

struct Tensor {
  CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_UINT16;
  int bytes = 2;  // of an element
  std::vector<cuuint64_t> sizes = {40, 20};
  std::vector<cuuint32_t> box = {8, 16};
  std::vector<cuuint32_t> steps = {1, 1};  // element strides
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
  bool fill_nan = false;

  size_t rank() const { return sizes.size(); }
  // Rows are padded to a multiple of 16 bytes, and 16 more.
  std::vector<cuuint64_t> strides() const {
    std::vector<cuuint64_t> strides;
    cuuint64_t pitch = (sizes[0] * static_cast<cuuint64_t>(bytes) + 31) / 16 * 16;
    for (size_t i = 1; i < rank(); ++i) {
      strides.push_back(pitch);
      pitch *= sizes[i];
    }
    return strides;
  }
  size_t total_bytes() const {
    return rank() == 1 ? sizes[0] * static_cast<size_t>(bytes) + 16 : strides().back() * sizes.back();
  }
  uint32_t box_bytes() const {  // of the elements that a copy moves
    uint32_t count = static_cast<uint32_t>(bytes);
    // The innermost element stride is ignored (CUDA driver API, cuTensorMapEncodeTiled).
    for (size_t i = 0; i < rank(); ++i) count *= i ? (box[i] + steps[i] - 1) / steps[i] : box[i];
    return count;
  }
};

using Coordinates = std::vector<int>;

std::vector<uint8_t> random_bytes(uint64_t seed, size_t count) {
  Random random(seed);
  std::vector<uint8_t> bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.next() >> 56);
  return bytes;
}

CUtensorMap map_of(Machine& machine, const Tensor& t, CUdeviceptr address) {
  return machine.tensor_map(t.type, t.sizes, t.strides(), t.box, t.steps, t.swizzle, t.fill_nan, address);
}

// %w1 = the map; coordinates from `in` in %r20 ...
std::string prologue(const Tensor& t) {
  std::string text = "  mov.b64 %w1, map0;\n  cvta.param.u64 %w1, %w1;\n  mov.u32 %r1, dynamic;\n";
  for (size_t i = 0; i < t.rank(); ++i)
    text += fmt::format("  ld.global.b32 %r{}, [%in+{}];\n", 20 + i, 4 * i);
  return text;
}
std::string coordinates(const Tensor& t) {
  std::string text = "{";
  for (size_t i = 0; i < t.rank(); ++i) text += fmt::format("{}%r{}", i ? ", " : "", 20 + i);
  return text + "}";
}
// Shared memory of `words` words: filled, or shown at `to`.
std::string fill_shared(uint32_t words) {
  return fmt::format(
      "  mov.u32 %r4, %thread;\n  mov.u32 %r6, 0xeeeeeeee;\nfill:\n  mad.lo.u32 %r5, %r4, 4, %r1;\n"
      "  st.shared.u32 [%r5], %r6;\n  add.u32 %r4, %r4, 32;\n  setp.lt.u32 %p1, %r4, {};\n  @%p1 bra fill;\n"
      "  fence.proxy.async.shared::cta;\n  bar.sync 0;\n",
      words);
}
std::string show_shared(uint32_t words, const std::string& to) {
  return fmt::format(
      "  mov.u32 %r4, %thread;\nshow:\n  mad.lo.u32 %r5, %r4, 4, %r1;\n  ld.shared.u32 %r6, [%r5];\n"
      "  mad.wide.u32 %w2, %r4, 4, {};\n  st.global.u32 [%w2], %r6;\n  add.u32 %r4, %r4, 32;\n"
      "  setp.lt.u32 %p1, %r4, {};\n  @%p1 bra show;\n",
      to, words);
}

// Loads the box at each place and shows shared memory; the box starts `offset` bytes after a multiple of
// 1024.
void add_load(Programs& programs, const std::string& name, const Tensor& t,
              const std::vector<Coordinates>& places, uint32_t offset = 0, bool narrow = false) {
  programs.push_back(
      {"tensor_copies/load." + name, [=](Machine& machine) {
         const auto bytes = random_bytes(31, t.total_bytes());
         const CUdeviceptr tensor = machine.allocate(bytes.data(), bytes.size());
         const uint32_t words = (offset + t.box_bytes() * (narrow ? 8 : 1) + 3) / 4 + 32;
         Kernel kernel;
         kernel.declarations = kDynamic;
         kernel.dynamic_shared = (words * 4 + 1023) / 1024 * 1024 + 1024;
         kernel.maps = {map_of(machine, t, tensor)};
         kernel.body =
             kInit1 + prologue(t) + fill_shared(words) +
             fmt::format(
                 "  @!%p18 bra ready;\n  add.u32 %r7, %r1, {};\n"
                 "  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r80], {};\n"
                 "  cp.async.bulk.tensor.{}d.shared::cluster.global.mbarrier::complete_tx::bytes [%r7], "
                 "[%w1, {}], [%r80];\nready:\n",
                 offset, t.box_bytes(), t.rank(), coordinates(t)) +
             bounded_wait("%r80", 0, "data") + show_shared(words, "%out");
         Words all;
         for (const Coordinates& place : places) {
           const Words out = machine.run(kernel, Words(place.begin(), place.end()), words);
           all.insert(all.end(), out.begin(), out.end());
         }
         return all;
       }});
}

// Stores, or combines, a box of random elements at each place and shows the tensor.
void add_store(Programs& programs, const std::string& name, const Tensor& t, const std::string& operation,
               const std::vector<Coordinates>& places) {
  programs.push_back(
      {"tensor_copies/" + name, [=](Machine& machine) {
         auto bytes = random_bytes(32, (t.total_bytes() + 7) / 4 * 4);
         const uint32_t words = (t.box_bytes() + 3) / 4;
         Kernel kernel;
         kernel.declarations = kDynamic;
         kernel.dynamic_shared = (words * 4 + 1023) / 1024 * 1024 + 1024;
         const std::string copy =
             operation.empty()
                 ? fmt::format("cp.async.bulk.tensor.{}d.global.shared::cta.bulk_group", t.rank())
                 : fmt::format("cp.reduce.async.bulk.tensor.{}d.global.shared::cta.{}.bulk_group", t.rank(),
                               operation);
         kernel.body =
             kFirst + prologue(t) +
             fmt::format(
                 "  mov.u32 %r4, %lane;\nfill:\n  mad.wide.u32 %w2, %r4, 4, %in;\n"
                 "  ld.global.u32 %r6, [%w2+32];\n  mad.lo.u32 %r5, %r4, 4, %r1;\n"
                 "  st.shared.u32 [%r5], %r6;\n  add.u32 %r4, %r4, 32;\n  setp.lt.u32 %p1, %r4, {};\n"
                 "  @%p1 bra fill;\n  fence.proxy.async.shared::cta;\n  bar.warp.sync 0xffffffff;\n"
                 "  @!%p18 bra done;\n  {} [%w1, {}], [%r1];\n  cp.async.bulk.commit_group;\n"
                 "  cp.async.bulk.wait_group 0;\ndone:\n",
                 words, copy, coordinates(t));
         const auto source = random_bytes(33, words * 4);
         Words all;
         for (const Coordinates& place : places) {
           const CUdeviceptr tensor = machine.allocate(bytes.data(), bytes.size());
           kernel.maps = {map_of(machine, t, tensor)};
           Words in(8 + words);
           std::copy(place.begin(), place.end(), in.begin());
           std::memcpy(&in[8], source.data(), source.size());
           machine.run(kernel, in, 1);
           Words after(bytes.size() / 4);
           machine.read(tensor, after.data(), after.size() * 4);
           all.insert(all.end(), after.begin(), after.end());
         }
         return all;
       }});
}

constexpr CUtensorMapSwizzle kNone = CU_TENSOR_MAP_SWIZZLE_NONE, k32 = CU_TENSOR_MAP_SWIZZLE_32B,
                             k64 = CU_TENSOR_MAP_SWIZZLE_64B, k128 = CU_TENSOR_MAP_SWIZZLE_128B;

void add_loads(Programs& programs) {
  const std::vector<Coordinates> around = {{0, 0},   {8, 2},   {-8, -3}, {32, 15},  {16, 1},
                                           {-16, 7}, {32, 19}, {40, 20}, {-104, 5}, {8, -16}};
  struct Swizzle {
    const char* name;
    CUtensorMapSwizzle mode;
    cuuint32_t columns;
  };
  for (const Swizzle& s : {Swizzle{"none", kNone, 8}, Swizzle{"none.wide", kNone, 24},
                           Swizzle{"32B", k32, 16}, Swizzle{"64B", k64, 32}, Swizzle{"128B", k128, 64}}) {
    Tensor t;
    t.swizzle = s.mode;
    t.box[0] = s.columns;
    add_load(programs, fmt::format("2d.{}", s.name), t, around);
  }
  // Boxes narrower than their swizzle (not documented), with room to see where rows go.
  for (const Swizzle& s :
       {Swizzle{"128B.half", k128, 32}, Swizzle{"128B.quarter", k128, 16}, Swizzle{"64B.half", k64, 16},
        Swizzle{"128B.48", k128, 24}, Swizzle{"64B.48", k64, 24}, Swizzle{"32B.half", k32, 8}}) {
    Tensor t;
    t.swizzle = s.mode;
    t.box[0] = s.columns;
    add_load(programs, fmt::format("2d.narrow.{}", s.name), t, {{0, 0}, {8, 2}}, 0, true);
  }
  // The swizzle follows the address in shared memory.
  for (const uint32_t offset : {128u, 256u, 512u, 896u})
    for (const auto& [name, mode, columns] :
         {Swizzle{"32B", k32, 16}, Swizzle{"64B", k64, 32}, Swizzle{"128B", k128, 64}}) {
      Tensor t;
      t.swizzle = mode;
      t.box[0] = columns;
      add_load(programs, fmt::format("2d.{}.offset{}", name, offset), t, {{0, 0}, {8, 7}}, offset);
    }
  struct Type {
    const char* name;
    CUtensorMapDataType type;
    int bytes;
    bool floating;
  };
  for (const Type& type : {Type{"u8", CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, false},
                           Type{"u32", CU_TENSOR_MAP_DATA_TYPE_UINT32, 4, false},
                           Type{"s32", CU_TENSOR_MAP_DATA_TYPE_INT32, 4, false},
                           Type{"u64", CU_TENSOR_MAP_DATA_TYPE_UINT64, 8, false},
                           Type{"s64", CU_TENSOR_MAP_DATA_TYPE_INT64, 8, false},
                           Type{"f16", CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, true},
                           Type{"bf16", CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, true},
                           Type{"f32", CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, true},
                           Type{"f32_ftz", CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ, 4, true},
                           Type{"tf32", CU_TENSOR_MAP_DATA_TYPE_TFLOAT32, 4, true},
                           Type{"tf32_ftz", CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ, 4, true},
                           Type{"f64", CU_TENSOR_MAP_DATA_TYPE_FLOAT64, 8, true}})
    for (const bool nan : {false, true}) {
      if (nan && !type.floating) continue;
      Tensor t;
      t.type = type.type;
      t.bytes = type.bytes;
      t.box[0] = type.bytes == 1 ? 32 : 16;
      t.fill_nan = nan;
      add_load(programs, fmt::format("2d.{}{}", type.name, nan ? ".nan" : ""), t,
               {{0, 0}, {-16, -5}, {32, 13}});
    }
  // Ranks, strides between the elements taken.
  const auto ranked = [&](const char* name, std::vector<cuuint64_t> sizes, std::vector<cuuint32_t> box,
                          std::vector<cuuint32_t> steps, std::vector<Coordinates> places,
                          CUtensorMapSwizzle mode = kNone) {
    Tensor t;
    t.type = CU_TENSOR_MAP_DATA_TYPE_UINT32;
    t.bytes = 4;
    t.sizes = std::move(sizes);
    t.box = std::move(box);
    t.steps = std::move(steps);
    t.swizzle = mode;
    add_load(programs, name, t, places);
  };
  ranked("1d", {100}, {48}, {1}, {{0}, {-8}, {72}});
  ranked("3d", {8, 6, 4}, {4, 4, 2}, {1, 1, 1}, {{0, 0, 0}, {-4, 3, 2}, {4, -2, 3}, {8, 1, 1}});
  ranked("4d", {8, 5, 4, 3}, {8, 3, 2, 2}, {1, 1, 1, 1}, {{0, 0, 0, 0}, {4, 3, -1, 2}, {-4, 4, 3, -1}});
  ranked("5d", {8, 3, 4, 3, 2}, {8, 2, 2, 2, 2}, {1, 1, 1, 1, 1},
         {{0, 0, 0, 0, 0}, {4, 2, -1, 2, 1}, {-4, -1, 3, -1, -1}});
  ranked("3d.128B", {40, 6, 4}, {32, 4, 3}, {1, 1, 1}, {{0, 0, 0}, {-4, 3, 2}, {16, -2, 3}}, k128);
  ranked("2d.rows2", {16, 20}, {8, 8}, {1, 2}, {{0, 0}, {4, 5}, {-4, -3}, {12, 15}});
  ranked("2d.rows3", {16, 20}, {8, 8}, {1, 3}, {{0, 0}, {4, 5}, {-4, -3}, {12, 15}});
  ranked("2d.columns2", {32, 20}, {16, 4}, {2, 1}, {{0, 0}, {4, 5}, {-4, -3}, {24, 18}});
  ranked("3d.steps", {32, 9, 8}, {16, 5, 4}, {2, 2, 3}, {{0, 0, 0}, {4, 5, 1}, {-4, -3, -1}, {24, 7, 6}});
}

void add_stores(Programs& programs) {
  const std::vector<Coordinates> places = {{0, 0}, {24, 10}, {8, 7}, {32, 19}};
  struct Swizzle {
    const char* name;
    CUtensorMapSwizzle mode;
    cuuint32_t columns;
  };
  for (const Swizzle& s : {Swizzle{"none", kNone, 24}, Swizzle{"32B", k32, 16}, Swizzle{"64B", k64, 32},
                           Swizzle{"128B", k128, 64}}) {
    Tensor t;
    t.swizzle = s.mode;
    t.box[0] = s.columns;
    add_store(programs, fmt::format("store.2d.{}", s.name), t, "", places);
  }
  Tensor box3;
  box3.type = CU_TENSOR_MAP_DATA_TYPE_UINT32;
  box3.bytes = 4;
  box3.sizes = {12, 6, 4};
  box3.box = {8, 4, 3};
  box3.steps = {1, 1, 1};
  add_store(programs, "store.3d", box3, "", {{0, 0, 0}, {4, 3, 2}, {8, 5, 1}});
  struct Reduction {
    const char* type;
    CUtensorMapDataType map;
    int bytes;
    std::vector<const char*> operations;
  };
  for (const Reduction& r :
       {Reduction{"u32",
                  CU_TENSOR_MAP_DATA_TYPE_UINT32,
                  4,
                  {"add", "min", "max", "inc", "dec", "and", "or", "xor"}},
        Reduction{"s32", CU_TENSOR_MAP_DATA_TYPE_INT32, 4, {"add", "min", "max"}},
        Reduction{"u64", CU_TENSOR_MAP_DATA_TYPE_UINT64, 8, {"add", "min", "max", "and"}},
        Reduction{"s64", CU_TENSOR_MAP_DATA_TYPE_INT64, 8, {"min", "max"}},
        Reduction{"f16", CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, {"add", "min", "max"}},
        Reduction{"bf16", CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, {"add", "min", "max"}},
        Reduction{"f32", CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, {"add"}},
        Reduction{"f32_ftz", CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ, 4, {"add"}}})
    for (const char* operation : r.operations) {
      Tensor t;
      t.type = r.map;
      t.bytes = r.bytes;
      t.box[0] = 16;
      add_store(programs, fmt::format("reduce.{}.{}", operation, r.type), t, operation, {{8, 2}});
    }
}

void add_multicast(Programs& programs) {
  // One CTA of 4 loads a box for the CTAs of its mask; everyone shows its shared memory.
  for (const auto& [mask, issuer] :
       {std::pair(0xfu, 0u), std::pair(0xau, 2u), std::pair(0x5u, 2u), std::pair(0x8u, 1u)}) {
    const uint32_t m = mask, from = issuer;
    programs.push_back(
        {fmt::format("tensor_copies/multicast.{:x}.from{}", m, from), [=](Machine& machine) {
           Tensor t;
           t.swizzle = k128;
           t.box[0] = 64;
           const auto bytes = random_bytes(34, t.total_bytes());
           const CUdeviceptr tensor = machine.allocate(bytes.data(), bytes.size());
           Kernel kernel;
           kernel.declarations = kDynamic;
           kernel.dynamic_shared = 4096;
           kernel.ctas = 4;
           kernel.cluster = "4, 1, 1";
           kernel.maps = {map_of(machine, t, tensor)};
           const uint32_t words = t.box_bytes() / 4;
           kernel.body =
               kInit1 + prologue(t) + fill_shared(words) +
               fmt::format(
                   "  mov.u32 %r10, %cluster_ctarank;\n  mov.u32 %r11, {};\n  shr.u32 %r11, %r11, %r10;\n"
                   "  and.b32 %r11, %r11, 1;\n  setp.ne.u32 %p2, %r11, 0;\n  and.pred %p3, %p2, %p18;\n"
                   "  @%p3 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r80], {};\n",
                   m, t.box_bytes()) +
               kClusterSync +
               fmt::format(
                   "  setp.eq.u32 %p4, %r10, {};\n  and.pred %p4, %p4, %p18;\n  mov.b16 %h1, {};\n"
                   "  @%p4 "
                   "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::"
                   "cluster [%r1], [%w1, {}], [%r80], %h1;\n  @!%p2 bra past;\n",
                   from, m, coordinates(t)) +
               bounded_wait("%r80", 0, "data") + "past:\n" + kClusterSync +
               fmt::format("  mul.lo.u32 %r12, %cta, {};\n  mad.wide.u32 %w5, %r12, 4, %out;\n", words) +
               show_shared(words, "%w5");
           return machine.run(kernel, {8, 0xffffffff}, words * 4);
         }});
  }
}

// Copies and reductions without a map.
void add_bulk(Programs& programs) {
  const auto run = [](Machine& machine, const std::string& copy, uint32_t bytes, uint64_t seed) {
    // `in`: bytes for shared memory, then the target's contents; the target is `out` after them.
    Words in(bytes / 2);
    Random random(seed);
    for (uint32_t& word : in) word = random.word();
    Kernel kernel;
    kernel.declarations = kDynamic;
    kernel.dynamic_shared = bytes;
    kernel.body =
        kFirst +
        fmt::format(
            "  mov.u32 %r1, dynamic;\n  mov.u32 %r4, %lane;\n  setp.ge.u32 %p1, %r4, {1};\n  @%p1 bra "
            "filled;\nfill:\n"
            "  mad.wide.u32 %w2, %r4, 4, %in;\n  ld.global.u32 %r6, [%w2];\n  ld.global.u32 %r7, "
            "[%w2+{0}];\n  mad.lo.u32 %r5, %r4, 4, %r1;\n"
            "  st.shared.u32 [%r5], %r6;\n  mad.wide.u32 %w3, %r4, 4, %out;\n  st.global.u32 [%w3], %r7;\n"
            "  add.u32 %r4, %r4, 32;\n  setp.lt.u32 %p1, %r4, {1};\n  @%p1 bra fill;\nfilled:\n  "
            "fence.proxy.async;\n"
            "  bar.warp.sync 0xffffffff;\n  @!%p18 bra done;\n  {2} [%out], [%r1], {0};\n"
            "  cp.async.bulk.commit_group;\n  cp.async.bulk.wait_group 0;\ndone:\n",
            bytes, bytes / 4, copy);
    return machine.run(kernel, in, bytes / 4);
  };
  for (const char* operation :
       {"add.u32", "min.s32", "max.u32", "inc.u32", "dec.u32", "and.b32", "or.b64", "xor.b32", "add.u64",
        "min.s64", "add.f32", "add.f64", "add.noftz.f16", "add.noftz.bf16", "min.f16", "max.bf16"}) {
    const std::string copy = std::string("cp.reduce.async.bulk.global.shared::cta.bulk_group.") + operation;
    programs.push_back({std::string("tensor_copies/bulk.") + operation,
                        [=](Machine& machine) { return run(machine, copy, 1024, 41); }});
  }
  for (const uint32_t bytes : {16u, 48u, 2032u})
    programs.push_back({fmt::format("tensor_copies/bulk.store{}", bytes), [=](Machine& machine) {
                          return run(machine, "cp.async.bulk.global.shared::cta.bulk_group", bytes, 42);
                        }});
}

}  // namespace

void add_tensor_copies(Programs& programs) {
  add_loads(programs);
  add_stores(programs);
  add_multicast(programs);
  add_bulk(programs);
}

}  // namespace mxfa::silicon
