# What people type. Everything else is CMake (CMakePresets.json); each target installs what it needs first.
.PHONY: help build run test test-kernels test-soft-gpu test-gpu test-ui bench bench-kernels bench-gpu soak fuzz test-clients lint format install package clean setup

FUZZ_SECONDS ?= 60
FUZZ_PICTURES ?= 10000
FUZZ_MODELS ?= 1000
SOAK_REQUESTS ?= 2000
SOAK_SEED ?= 1
SOAK_PAGES ?= q8_0,q8_0,0 q5_0,q5_0,0 q4_0,q4_0,0 tq4,tq4,0 tq3,tq3,0 tq2,tq2,0 fp8,fp8,0 bf16,bf16,0 q8_0,tq4,-1 tq3,q5_0,1
PREFIX ?= /usr/local
PROMPT ?=
export PROMPT

help:
	@echo "make run      build, then talk to the demo model (PROMPT=\"What is 12 plus 30?\" for one answer)"
	@echo "make test     build and run every test (about twenty minutes on two cores)"
	@echo "make test-kernels   the kernels of every instruction set under ASan and UBSan"
	@echo "make test-soft-gpu  the CUDA backend on a GPU in software, as three chips (two hours and more)"
	@echo "make test-gpu       the CUDA backend on cuda:0: suite, checkers, engine, reference logits, compute-sanitizer (QUICK=1: shorter)"
	@echo "make test-ui  the web UI in a browser: every journey, hostile answers, accessibility, budgets"
	@echo "make build    leave the program at build/hearth"
	@echo "make bench    measure; bench-kernels measures the kernels alone"
	@echo "make bench-gpu   whole models of random weights on cuda:0, beside what reading allows (PEER=llama-bench: and beside it)"
	@echo "make soak     SOAK_REQUESTS=$(SOAK_REQUESTS) random requests per kind of model, then 200 streams for a minute"
	@echo "make fuzz     fuzz every parser, FUZZ_SECONDS=$(FUZZ_SECONDS) each; then FUZZ_PICTURES=$(FUZZ_PICTURES) broken pictures of each format, and FUZZ_MODELS=$(FUZZ_MODELS) hostile files of each kind of model"
	@echo "make test-clients   install coding agents and frameworks from npm (2.5 GB), and run each against the server"
	@echo "make lint     warnings of gcc and clang, cppcheck, clang-tidy, format"
	@echo "make format   rewrite the sources with clang-format"
	@echo "make install  install program, library, header below PREFIX=$(PREFIX)"
	@echo "make package  Debian packages and a tarball in build-package (docs/packages.md)"

setup:
	@scripts/setup build

build: setup
	@cmake --preset release -DCMAKE_INSTALL_PREFIX=$(PREFIX) >build.log 2>&1 || (cat build.log; exit 1)
	@cmake --build --preset release

run: build
	@scripts/run

test:
	@scripts/setup build test lint
	@scripts/test

test-kernels:
	@scripts/setup build test
	@cmake --preset asan -B build-asan-kernels >build.log 2>&1 || (cat build.log; exit 1)
	@cmake --build build-asan-kernels --target kernel_checkers
	@ctest --test-dir build-asan-kernels -j2 -R '^check_[a-z]*[.](scalar|avx|amx)' --output-on-failure

test-soft-gpu:
	@scripts/setup build test
	@scripts/test-soft-gpu

test-gpu:
	@scripts/setup build test
	@scripts/test-gpu

test-ui:
	@scripts/setup build test
	@scripts/test-ui

bench: build
	@scripts/bench

bench-gpu: build
	@python3 bench/whole_models.py build $(if $(PEER),--peer $(PEER))

bench-kernels: build
	@build/bench/bench_kernels
	@build/bench/bench_attn

soak:
	@scripts/setup build test
	@cmake --preset release >build.log 2>&1 || (cat build.log; exit 1)
	@cmake --build --preset release --target soak_engine --target soak_speculate --target test_engine --target test_engine_heap --target test_prefix --target hearth
	@build/tests/soak_engine $(SOAK_REQUESTS) $(SOAK_SEED)
	@build/tests/soak_speculate 500 $(SOAK_SEED)
	@build/tests/test_engine_heap 10000
	@for kv in $(SOAK_PAGES); do echo "pages: $$kv"; HEARTH_TEST_KV=$$kv build/tests/soak_engine 200 $(SOAK_SEED) && \
	    HEARTH_TEST_KV=$$kv build/tests/soak_speculate 40 $(SOAK_SEED) && \
	    HEARTH_TEST_KV=$$kv build/tests/test_engine && HEARTH_TEST_KV=$$kv build/tests/test_prefix || exit 1; done
	@for d in cpu/1 cpu/1+cpu/1 cpu/experts:0; do echo "device: $$d"; HEARTH_TEST_DEVICE=$$d build/tests/soak_engine 200 $(SOAK_SEED) && \
	    HEARTH_TEST_DEVICE=$$d build/tests/soak_speculate 40 $(SOAK_SEED) && HEARTH_TEST_DEVICE=$$d build/tests/test_engine && \
	    HEARTH_TEST_DEVICE=$$d build/tests/test_prefix || exit 1; done
	@python3 tests/cli/check_directories.py build/hearth all
	@HEARTH_IO_PERCENT=5 HEARTH_HEALTH_MS=20 HEARTH_GONE_MS=200 python3 tests/api/check_streams.py build/hearth 200 60
	@HEARTH_LONG=1 python3 tests/api/check_workers.py build/hearth
	@python3 tests/api/check_sight.py build/hearth 1000
	@cd tests/api && npm ci --no-audit --no-fund >../../build.log 2>&1 && node random_models.mjs ../../build/hearth
	@python3 tests/api/check_image_urls.py build/hearth --long
	@python3 tests/api/check_gpu.py build/hearth 200 10000

HOSTILE = test_model_hostile test_vision_hostile test_hearing_hostile test_mmproj_hostile

fuzz:
	@scripts/setup build test
	@scripts/fuzz seconds $(FUZZ_SECONDS)
	@cmake --preset asan >build.log 2>&1 || (cat build.log; exit 1)
	@cmake --build --preset asan --target soak_pictures --target hearth $(addprefix --target ,$(HOSTILE))
	@HEARTH_PROGRAM=build-asan/hearth build-asan/tests/soak_pictures $(FUZZ_PICTURES)
	@for test in $(HOSTILE); do \
	  ASAN_OPTIONS=max_allocation_size_mb=4096 HEARTH_HOSTILE=$(FUZZ_MODELS) build-asan/tests/$$test || exit 1; done

test-clients:
	@scripts/setup build test
	@cmake --preset release >build.log 2>&1 || (cat build.log; exit 1)
	@cmake --build --preset release --target hearth
	@scripts/test-clients build/hearth $(CASES)

lint:
	@scripts/setup build test lint
	@scripts/lint

format:
	@scripts/setup lint
	@git ls-files '*.c' '*.h' | xargs clang-format -i

install: build
	@cmake --install build

package:
	@scripts/setup build package
	@scripts/package

clean:
	@rm -rf build build-* build.log
