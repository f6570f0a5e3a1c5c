# The GPU in software (docs/cuda.md, "Without a device"): the machine with its runtime as `soft_gpu`, and soft_<program> for programs
# that compute on a device: linked with it in place of the CUDA runtime.
if(NOT HEARTH_CUDA_BUILD)
  return()
endif()

file(GLOB soft_gpu_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.c)
file(GLOB soft_runtime_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/runtime_*.c ${CMAKE_CURRENT_LIST_DIR}/fatbin.c)
file(GLOB soft_gpu_tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/test_*.c)
list(REMOVE_ITEM soft_gpu_sources ${soft_gpu_tests})
add_library(soft_gpu STATIC ${soft_gpu_sources})
# Loops over lanes, which gcc leaves as they are with less.
set(soft_gpu_loops alu.c convert.c mma.c access.c moves.c meet.c)
list(TRANSFORM soft_gpu_loops PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
set_source_files_properties(${soft_gpu_loops}
  PROPERTIES COMPILE_OPTIONS "-O3;-fno-math-errno;-fno-trapping-math")
target_include_directories(soft_gpu PUBLIC ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/tests)
target_include_directories(soft_gpu SYSTEM PUBLIC ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
target_link_libraries(soft_gpu PUBLIC h_base m)

# Kernels as PTX that is not compressed, since the machine reads it: compiled once more for these programs alone. Where the build is
# quick they are part of everything, elsewhere `ninja soft_check_cuda` and the others make them.
set(soft_apart EXCLUDE_FROM_ALL)
if(HEARTH_CUDA_QUICK)
  set(soft_apart)
endif()
set(soft_cuda_flags ${HEARTH_CUDA_FLAGS})
list(FILTER soft_cuda_flags EXCLUDE REGEX "^(-gencode|--Ofast-compile)")
list(APPEND soft_cuda_flags --no-compress -gencode=arch=compute_90a,code=compute_90a -gencode=arch=compute_80,code=compute_80)
if(HEARTH_CUDA_QUICK AND CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  # More haste (mid, max) saves less time than the tests then take: it is paid with 1.3 and 3 times the instructions.
  list(APPEND soft_cuda_flags --Ofast-compile=min)
endif()
get_target_property(soft_cuda_sources h_cuda SOURCES)
add_library(h_cuda_soft STATIC ${soft_apart} ${soft_cuda_sources})
target_include_directories(h_cuda_soft PUBLIC ${CMAKE_SOURCE_DIR}/src)
target_compile_options(h_cuda_soft PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:${soft_cuda_flags}>")
target_link_libraries(h_cuda_soft PUBLIC soft_gpu h_kernels h_base)

# What follows chooses the kernels: h_backend looks at HEARTH_SOFT_GPU of the program that is linked (src/CMakeLists.txt).
function(soft_links name)
  target_link_libraries(${name} PRIVATE ${ARGN})
  set_target_properties(${name} PROPERTIES HEARTH_SOFT_GPU ON CUDA_RUNTIME_LIBRARY None)
endfunction()

foreach(program check_cuda check_cuda_attn check_cuda_pages check_cuda_rows check_choose check_picks check_backend check_lost test_engine test_prefix test_ahead
    check_experts test_models_golden test_vision test_hearing)
  get_target_property(sources ${program} SOURCES)
  get_target_property(links ${program} LINK_LIBRARIES)
  list(TRANSFORM links REPLACE "^h_cuda$" h_cuda_soft)
  add_executable(soft_${program} ${soft_apart} ${sources})
  soft_links(soft_${program} ${links})
endforeach()
add_executable(soft_hearth ${soft_apart})
soft_links(soft_hearth h_cli)
# These take minutes: scripts/test-soft-gpu.
set_target_properties(soft_test_prefix soft_test_ahead PROPERTIES EXCLUDE_FROM_ALL ON)

# soft_test(chip program arguments...), a short form of what scripts/test-soft-gpu runs; soft_races: the same, and races are a fault
# (tests/gpu/races.h), at twice to four times the instructions' time.
function(soft_test chip program)
  string(REPLACE ";" "." name "soft_${program};${chip};${ARGN}")
  string(REGEX REPLACE "[.](cuda:0|--quick|$)" "" name "${name}")
  string(REGEX REPLACE "[:/+]" "_" name "${name}")
  add_test(NAME ${name} COMMAND soft_${program} ${ARGN})
  set_tests_properties(${name} PROPERTIES TIMEOUT 600
    ENVIRONMENT "HEARTH_GPU=${chip};HEARTH_GPU_COUNT=2;HEARTH_PROGRAM=$<TARGET_FILE:hearth>")
endfunction()
function(soft_races chip program)
  soft_test(${chip} ${program} ${ARGN})
  string(REPLACE ";" "." name "soft_${program};${chip};${ARGN}")
  string(REGEX REPLACE "[.](cuda:0|--quick|$)" "" name "${name}")
  string(REGEX REPLACE "[:/+]" "_" name "${name}")
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "HEARTH_GPU_RACES=1")
endfunction()
# soft_small(chip program tests arguments...): the small form of a program, those of its tests whose names fit.
function(soft_small chip program tests)
  set(name soft_${program}.${chip})
  add_test(NAME ${name} COMMAND soft_${program} ${ARGN})
  set_tests_properties(${name} PROPERTIES TIMEOUT 600
    ENVIRONMENT "HEARTH_GPU=${chip};HEARTH_TEST_DEVICE=cuda:0;HEARTH_TEST_SMALL=1;HEARTH_TEST_FILTER=${tests}")
endfunction()
if(HEARTH_CUDA_QUICK)
  soft_test(90 check_backend cuda:0 --quick ops)
  soft_test(90 check_cuda --quick)
  soft_test(86 check_backend cuda:0 --quick ops whole)
  soft_test(90 check_backend cuda:0 --quick bits inputs moves batches ranges calls sample ahead)
  soft_races(90 check_backend cuda:0 --quick whole adapters)
  soft_test(90 check_backend cuda:0/1 --quick ops bits moves adapters sample)
  soft_test(90 check_backend cuda:0/experts:0 --quick ops bits)
  soft_test(90 check_backend cuda:0+cuda:1/1 --quick bits moves adapters sample whole)
  soft_test(90 check_cuda_attn --quick)
  soft_test(90 check_cuda_rows)
  soft_races(90 check_cuda_pages --quick)
  soft_races(90 check_picks --quick)
  soft_races(90 check_choose --quick)
  soft_test(90 check_lost)
  add_test(NAME soft_divided COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/api/check_divided.py $<TARGET_FILE:soft_hearth>)
  add_test(NAME soft_packed COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/cli/check_packed.py $<TARGET_FILE:soft_hearth> --device=cuda:0)
  set_tests_properties(soft_divided soft_packed PROPERTIES TIMEOUT 600)
  soft_small(90 test_models_golden test_reference*)
  soft_small(90 test_vision test_paligemma2) # spans that are longer than a window
  soft_small(90 test_hearing test_whisper)   # attention that ends before a row's own position
  soft_small(90 test_engine test_transformer)
  soft_small(90 check_experts * --quick)
endif()

# The runtime over a fake machine, and the machine's own parts.
foreach(file IN LISTS soft_gpu_tests)
  get_filename_component(name ${file} NAME_WE)
  add_executable(${name} ${file})
  target_link_libraries(${name} PRIVATE PkgConfig::CMOCKA)
  if(name STREQUAL "test_gpu_runtime")
    target_sources(${name} PRIVATE ${soft_runtime_sources})
    target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/tests)
    target_include_directories(${name} SYSTEM PRIVATE ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
    target_link_libraries(${name} PRIVATE h_base)
  else()
    target_link_libraries(${name} PRIVATE soft_gpu h_tensor)
    target_sources(${name} PRIVATE ${CMAKE_SOURCE_DIR}/src/kernels/cuda/twin.c)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 600)
endforeach()
