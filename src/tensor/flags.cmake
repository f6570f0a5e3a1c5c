# The quantizers are compiled once per instruction set; all give the same bytes (tensor/quant/lanes.h).
hearth_library(tensor DEPS base LINK m)
if(HEARTH_SANITIZE OR HEARTH_KERNELS_ONLY) # where their speed is not looked at
  set(quant_opt -O1)
else()
  set(quant_opt -O3)
endif()
set(quant_dir ${CMAKE_CURRENT_SOURCE_DIR}/tensor/quant)
set_source_files_properties(${quant_dir}/set_plain.c PROPERTIES COMPILE_FLAGS "${quant_opt}")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set_source_files_properties(${quant_dir}/set_avx2.c PROPERTIES COMPILE_FLAGS "${quant_opt} -mavx2 -mf16c -mfma")
  set_source_files_properties(${quant_dir}/set_avx512.c PROPERTIES
    COMPILE_FLAGS "${quant_opt} -mavx2 -mf16c -mfma -mavx512f -mavx512bw -mavx512dq -mavx512vl")
else()
  set_source_files_properties(${quant_dir}/set_avx2.c ${quant_dir}/set_avx512.c PROPERTIES HEADER_FILE_ONLY ON)
endif()
