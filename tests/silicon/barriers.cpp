// mbarriers: the phase seen after each operation, by one thread, so that every observation is determined.
#include "operands.hpp"
#include "pieces.hpp"

namespace mxfa::silicon {
namespace {

// A sequence of operations on one mbarrier at %r80; each observation is one word of the answer.
class Sequence {
 public:
  explicit Sequence(int count) {
    text_ = kGate + fmt::format("  mbarrier.init.shared::cta.b64 [%r80], {};\n", count);
  }
  Sequence& then(const std::string& instruction) {
    text_ += "  " + instruction + "\n";
    return *this;
  }
  Sequence& put(const std::string& reg) {
    text_ += fmt::format("  st.global.b32 [%out+{}], {};\n", 4 * words_++, reg);
    return *this;
  }
  // Bit 0: parity 0 is complete, bit 1: parity 1 is.
  Sequence& look() {
    text_ +=
        "  mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r80], 0;\n"
        "  mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r80], 1;\n"
        "  selp.u32 %r1, 1, 0, %p1;\n  @%p2 or.b32 %r1, %r1, 2;\n";
    return put("%r1");
  }
  Sequence& state(const std::string& reg) {  // whether the phase of a state has ended
    text_ += fmt::format(
        "  mbarrier.test_wait.shared::cta.b64 %p1, [%r80], {};\n  selp.u32 %r1, 1, 0, %p1;\n", reg);
    return put("%r1");
  }
  Sequence& pending(const std::string& reg) {
    text_ += fmt::format("  mbarrier.pending_count.b64 %r1, {};\n", reg);
    return put("%r1");
  }
  Sequence& word() {  // the mbarrier as it lies in memory
    text_ += "  ld.volatile.shared.v2.b32 {%r1, %r2}, [%r80];\n";
    return put("%r1").put("%r2");
  }
  void add(Programs& programs, const std::string& name, Agreement agreement = {}) const {
    const Kernel kernel{text_, 1};
    const auto words = static_cast<size_t>(words_);
    programs.push_back(
        {"barriers/" + name, [=](Machine& machine) { return machine.run(kernel, {}, words); }, agreement});
  }

 private:
  std::string text_;
  int words_ = 0;
};

std::string arrive(const std::string& state = "_", int count = 1) {
  return fmt::format("mbarrier.arrive.shared::cta.b64 {}, [%r80], {};", state, count);
}
std::string expect(int bytes) {
  return fmt::format("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r80], {};", bytes);
}
std::string complete(int bytes) {
  return fmt::format("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r80], {};", bytes);
}
std::string arrive_expect(const std::string& state, int bytes) {
  return fmt::format("mbarrier.arrive.expect_tx.shared::cta.b64 {}, [%r80], {};", state, bytes);
}
std::string drop(const std::string& state) {
  return fmt::format("mbarrier.arrive_drop.shared::cta.b64 {}, [%r80];", state);
}

void add_threads(Programs& programs) {
  // 128 threads arrive twice around a shared counter.
  programs.push_back(
      {"barriers/many_threads", [](Machine& machine) {
         return machine.run(
             {kGate + kFirst +
                  "  .shared .align 4 .b32 sum;\n  @%p18 mbarrier.init.shared::cta.b64 [%r80], 128;\n"
                  "  @%p18 st.shared.u32 [sum], 0;\n  bar.sync 0;\n  red.shared.add.u32 [sum], %thread;\n"
                  "  mbarrier.arrive.shared::cta.b64 %w1, [%r80];\n" +
                  bounded_wait("%r80", 0, "a") +
                  "  ld.shared.u32 %r1, [sum];\n  mbarrier.arrive.shared::cta.b64 %w1, [%r80];\n" +
                  bounded_wait("%r80", 1, "b") +
                  "  red.shared.add.u32 [sum], 1;\n  mbarrier.arrive.shared::cta.b64 %w1, [%r80];\n" +
                  bounded_wait("%r80", 0, "c") +
                  "  ld.shared.u32 %r2, [sum];\n  mad.wide.u32 %w2, %thread, 8, %out;\n"
                  "  st.global.v2.u32 [%w2], {%r1, %r2};\n",
              128},
             {}, 256);
       }});
  // cp.async arrives when its data is there; with .noinc the arrival must have been counted.
  for (const char* noinc : {"", ".noinc"}) {
    const bool counted = *noinc != 0;
    programs.push_back(
        {std::string("barriers/cp.async") + noinc, [=](Machine& machine) {
           Words in(128);
           for (uint32_t i = 0; i < 128; ++i) in[i] = i * 3 + 1;
           return machine.run(
               {kGate + kFirst + "  .shared .align 16 .b8 box[512];\n" +
                fmt::format("  @%p18 mbarrier.init.shared::cta.b64 [%r80], {};\n", counted ? 64 : 32) +
                "  bar.sync 0;\n  mov.u32 %r1, box;\n  mad.lo.u32 %r2, %lane, 16, %r1;\n"
                "  mad.wide.u32 %w1, %lane, 16, %in;\n  cp.async.ca.shared.global [%r2], [%w1], 16;\n"
                "  cp.async.mbarrier.arrive" +
                noinc + ".shared::cta.b64 [%r80];\n  mbarrier.arrive.shared::cta.b64 _, [%r80];\n" +
                bounded_wait("%r80", 0, "data") +
                "  xor.b32 %r3, %lane, 31;\n  mad.lo.u32 %r2, %r3, 16, %r1;\n"
                "  ld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%r2];\n  mad.wide.u32 %w2, %lane, 16, %out;\n"
                "  st.global.v4.b32 [%w2], {%r4, %r5, %r6, %r7};\n"},
               in, 128);
         }});
  }
}

}  // namespace

void add_barriers(Programs& programs) {
  Sequence phases(3);
  phases.look();
  for (int i = 0; i < 13; ++i) phases.then(arrive()).look();
  phases.add(programs, "phases");

  Sequence counts(10);
  counts.then(arrive("%w1")).pending("%w1").then(arrive("%w1", 4)).pending("%w1");
  counts.then("mbarrier.arrive.noComplete.shared::cta.b64 %w1, [%r80], 2;").pending("%w1").look();
  counts.then(arrive("%w1", 3)).pending("%w1").look().then(arrive("%w1", 10)).pending("%w1").look();
  counts.then(arrive("%w1", 9)).pending("%w1").look().add(programs, "pending_counts");

  Sequence(1)
      .then(expect(16))
      .look()
      .then(arrive())
      .look()
      .then(complete(8))
      .look()
      .then(complete(8))
      .look()
      .then(arrive_expect("%w1", 32))
      .look()
      .then(complete(32))
      .look()
      .state("%w1")
      .add(programs, "expect_then_complete");
  Sequence(1)
      .then(complete(16))
      .look()
      .then(expect(16))
      .look()
      .then(arrive())
      .look()
      .then(complete(48))
      .look()
      .then(arrive_expect("%w1", 48))
      .look()
      .state("%w1")
      .add(programs, "complete_then_expect");
  Sequence(2)
      .then(arrive_expect("%w1", 64))
      .look()
      .then(complete(64))
      .look()
      .then(arrive())
      .look()
      .then(expect(1048575))
      .then(arrive("_", 2))
      .look()
      .then(complete(1048575))
      .look()
      .add(programs, "expect_and_counts");

  Sequence drops(3);
  drops.then(drop("%w1")).pending("%w1").look().then(arrive("%w1")).then(arrive("%w1")).look();
  drops.then(arrive("%w1")).pending("%w1").look().then(arrive("%w1")).look();
  drops.then(drop("%w1")).look().then(arrive("%w1")).look().then(arrive("%w1")).pending("%w1").look();
  drops.add(programs, "arrive_drop");
  Sequence(2)
      .then("mbarrier.arrive_drop.expect_tx.shared::cta.b64 %w1, [%r80], 16;")
      .look()
      .then(arrive("%w2"))
      .look()
      .then(complete(16))
      .look()
      .state("%w1")
      .then(arrive("%w2"))
      .look()
      .add(programs, "arrive_drop_expect");

  Sequence(2)
      .then(arrive("%w1"))
      .state("%w1")
      .then(arrive("%w2"))
      .state("%w1")
      .state("%w2")
      .then(arrive("%w3"))
      .state("%w1")
      .state("%w3")
      .then(arrive("%w4"))
      .state("%w3")
      .state("%w4")
      .add(programs, "states");
  Sequence(1)
      .then(arrive())
      .then("mbarrier.inval.shared::cta.b64 [%r80];")
      .then("mbarrier.init.shared::cta.b64 [%r80], 2;")
      .look()
      .then(arrive())
      .look()
      .then(arrive())
      .look()
      .add(programs, "init_again");
  Sequence(1)
      .then(arrive())
      .then("mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r80], 0; selp.u32 %r1, 1, 0, %p1;")
      .put("%r1")
      .then("mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r80], 0, 1000; selp.u32 %r1, 1, 0, %p1;")
      .put("%r1")
      .add(programs, "try_wait_complete");

  // The bits are not specified: to be read.
  Sequence bits(3);
  bits.word()
      .then(arrive())
      .word()
      .then(arrive())
      .word()
      .then(expect(16))
      .word()
      .then(complete(16))
      .word()
      .then(arrive())
      .word()
      .then(arrive("_", 3))
      .word()
      .then(drop("_"))
      .word()
      .then(complete(32))
      .word()
      .then(expect(32))
      .word();
  bits.add(programs, "words_in_memory", {Agreement::Kind::Recorded});
  add_threads(programs);
}

}  // namespace mxfa::silicon
