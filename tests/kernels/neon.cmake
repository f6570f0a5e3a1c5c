# Configures, builds and tests the kernels for 64-bit Arm in BINARY; any failing step ends the script with an error.
function(step)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE rc)
  if(NOT rc EQUAL 0)
    message(FATAL_ERROR "failed: ${ARGN}")
  endif()
endfunction()
# Only the NEON files, which say -O3 themselves, are what is checked here.
step(${CMAKE_COMMAND} -S ${SOURCE} -B ${BINARY} -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE=-O2
  -DCMAKE_TOOLCHAIN_FILE=${SOURCE}/cmake/aarch64.cmake -DHEARTH_KERNELS_ONLY=ON)
step(${CMAKE_COMMAND} --build ${BINARY} -j2)
step(ctest --test-dir ${BINARY} -j2 --output-on-failure --no-tests=error)
