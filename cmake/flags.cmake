# Compiler flags. No -march=native and no -ffast-math anywhere: SIMD flags are given per file (src/kernels) and chosen at
# run time; -ffp-contract=off keeps the order and rounding of floating-point operations what the source says.
# CUDA files have their own (cmake/cuda.cmake).
add_compile_options("$<$<COMPILE_LANGUAGE:C>:-Wall;-Wextra;-Wshadow;-Wconversion;-Wno-sign-conversion;-Wstrict-prototypes;\
-Wmissing-prototypes;-Wpointer-arith;-Wvla;-fno-strict-aliasing;-ffp-contract=off>")
add_compile_definitions($<$<COMPILE_LANGUAGE:C>:_GNU_SOURCE>)
if(HEARTH_WERROR)
  add_compile_options($<$<COMPILE_LANGUAGE:C>:-Werror>)
endif()
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  add_compile_options($<$<COMPILE_LANGUAGE:C>:-g1>)
  add_compile_definitions($<$<COMPILE_LANGUAGE:C>:_FORTIFY_SOURCE=2>)
endif()
if(HEARTH_SANITIZE)
  add_compile_options(-fsanitize=${HEARTH_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${HEARTH_SANITIZE})
  find_program(HEARTH_LLD ld.lld) # over a hundred test programs: half the time of GNU ld
  if(HEARTH_LLD)
    add_link_options(-fuse-ld=lld)
  endif()
endif()
if(HEARTH_COVERAGE)
  add_compile_options(--coverage -O0)
  add_link_options(--coverage)
endif()
if(HEARTH_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
