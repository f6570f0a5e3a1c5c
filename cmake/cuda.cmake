# CUDA kernels (docs/cuda.md): sets HEARTH_CUDA_BUILD, and enables the language where it is on. Nothing of CUDA is needed where
# it is off, and a program that has it starts where there is neither a GPU nor a driver: the runtime is linked statically and
# looks for libcuda.so.1 when it is first called.
set(HEARTH_CUDA auto CACHE STRING "CUDA kernels: auto (where nvcc is found), ON or OFF")
set_property(CACHE HEARTH_CUDA PROPERTY STRINGS auto ON OFF)
# "dev" builds for the newest measured chip alone and keeps PTX for the others, which the driver compiles at first use; "all" has
# machine code for every chip of docs/cuda.md and takes two and a half times as long.
set(HEARTH_CUDA_ARCHS dev CACHE STRING "machine code for: dev (9.0a and PTX), all, or a list such as 80;90a")
# For `make test` where no device is: every kernel is compiled and assembled with its warnings, in a fraction of the time, as slow
# code for one chip that nothing there can run (what the GPU in software runs is compiled apart: tests/gpu/gpu.cmake). The presets
# switch it off again.
option(HEARTH_CUDA_QUICK "compile CUDA kernels quickly instead of well" OFF)
option(HEARTH_CUDA_LINES "keep the lines of the sources beside CUDA code, for profilers: 28 MB more" OFF)
set(HEARTH_CUDA_BUILD OFF)

# Sanitizers, coverage and fuzzers look at C; a cross build has no nvcc of its own.
if(HEARTH_CUDA STREQUAL "auto" AND (HEARTH_SANITIZE OR HEARTH_COVERAGE OR HEARTH_FUZZ OR HEARTH_KERNELS_ONLY OR CMAKE_CROSSCOMPILING))
  return()
endif()
if(HEARTH_CUDA STREQUAL "auto" OR HEARTH_CUDA)
  find_program(HEARTH_NVCC nvcc HINTS /usr/local/cuda/bin)
  if(HEARTH_NVCC)
    if(NOT CMAKE_CUDA_COMPILER)
      set(ENV{CUDACXX} ${HEARTH_NVCC})
    endif()
    include(CheckLanguage)
    check_language(CUDA) # nvcc may be there without a C++ compiler
    set(CMAKE_CUDA_ARCHITECTURES OFF) # the flags below say it; older versions of CMake do not know every name
  endif()
  if(HEARTH_NVCC AND CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    set(HEARTH_CUDA_BUILD ON)
  elseif(NOT HEARTH_CUDA STREQUAL "auto")
    message(FATAL_ERROR "HEARTH_CUDA is on, but nvcc (or the C++ compiler it needs) was not found in PATH or /usr/local/cuda/bin")
  endif()
endif()
if(NOT HEARTH_CUDA_BUILD)
  return()
endif()

set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden) # libhearth exports hearth_* only
if(HEARTH_CUDA_ARCHS STREQUAL "dev")
  set(archs 90a)
elseif(HEARTH_CUDA_ARCHS STREQUAL "all")
  set(archs 80 86 89 90a 100a 120a)
else()
  set(archs ${HEARTH_CUDA_ARCHS})
  list(TRANSFORM archs REPLACE "^90$" "90a") # kernels for 9.0 use what only 9.0a has
endif()
# -fmad=false: a sum is fused where the source says fma and nowhere else, as on the CPU.
set(HEARTH_CUDA_FLAGS -fmad=false -Xcompiler=-Wall,-Wextra,-fno-exceptions)
if(HEARTH_CUDA_QUICK)
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 13) # the first that knows the option
    list(APPEND HEARTH_CUDA_FLAGS --Ofast-compile=max)
  endif()
elseif(HEARTH_CUDA_LINES)
  list(APPEND HEARTH_CUDA_FLAGS -lineinfo)
endif()
foreach(arch IN LISTS archs)
  list(APPEND HEARTH_CUDA_FLAGS -gencode=arch=compute_${arch},code=sm_${arch})
endforeach()
if(NOT HEARTH_CUDA_QUICK)
  list(APPEND HEARTH_CUDA_FLAGS -gencode=arch=compute_80,code=compute_80)
endif()
if(HEARTH_WERROR)
  list(APPEND HEARTH_CUDA_FLAGS -Werror=all-warnings -Xcompiler=-Werror)
endif()
