# The front door.  Each target installs what is missing (tools/setup.sh), builds and does one thing.
#   make run [DEVICE=name]     the quickstart shape file, BF16 and MXFP8, on the best device present
#   make test                  build everything, run every test that needs no GPU
#   make bench [SUITE=folder]  speed of the CPU driver and, where there is a supported GPU, of the suite on it
#   make test-gpu              the tests that need a GPU
#   make check                 style rules; no kernel spills; every deleted synchronisation is found
#   make format | clean
BUILD ?= build
DEVICE ?= auto
SUITE ?= configs/shapes/h200
CMAKE_FLAGS ?=

.PHONY: build run test bench test-gpu check format clean help setup

build: $(BUILD)/build.ninja
	@cmake --build $(BUILD)

setup:
	@tools/setup.sh

$(BUILD)/build.ninja: setup
	@if [ ! -f $@ ] || [ .deps/cuda_root -nt $@ ]; then \
	  cmake -G Ninja -S . -B $(BUILD) -DCUDA_HOME="$$(cat .deps/cuda_root)" $(CMAKE_FLAGS); fi

run: $(BUILD)/build.ninja
	@cmake --build $(BUILD) --target mxfa mxfa_emulator
	@$(BUILD)/bin/mxfa run configs/shapes/quickstart.json --device $(DEVICE) --verbose

test: build
	@ctest --test-dir $(BUILD) -L cpu --output-on-failure -j $$(nproc)

bench: $(BUILD)/build.ninja
	@cmake --build $(BUILD) --target mxfa_bench_driver mxfa mxfa_emulator
	@$(BUILD)/bin/mxfa_bench_driver
	@if $(BUILD)/bin/mxfa info --device gpu >/dev/null 2>&1; then \
	  $(BUILD)/bin/mxfa bench $(SUITE) --device gpu; \
	else \
	  echo 'no supported GPU here, so kernels are not timed (mxfa info --device gpu says why)'; fi

test-gpu: build
	@ctest --test-dir $(BUILD) -L gpu --output-on-failure --no-tests=error

check: $(BUILD)/build.ninja
	@cmake --build $(BUILD) --target mxfa mxfa_emulator mxfa_test_kernels mxfa_test_runtime
	@tools/check.sh $(BUILD)/bin/mxfa

format:
	@command -v clang-format >/dev/null || \
	  { echo 'missing: clang-format. Install with: sudo apt-get install -y clang-format' >&2; exit 1; }
	@git ls-files '*.hpp' '*.cpp' '*.h' '*.cuh' | xargs clang-format -i

clean:
	@rm -rf $(BUILD)

help:
	@sed -n '2,/^BUILD/{/^#/p}' Makefile
