# The checkers of the CUDA kernels (docs/cuda.md). Without a device they check the twins and say what they skipped.
if(HEARTH_CUDA_BUILD)
  foreach(program check_cuda check_cuda_attn check_cuda_pages check_experts)
    add_executable(${program} ${CMAKE_CURRENT_LIST_DIR}/${program}.c)
    target_link_libraries(${program} PRIVATE check_support h_cuda)
    add_test(NAME ${program} COMMAND ${program})
    set_tests_properties(${program} PROPERTIES TIMEOUT 600)
  endforeach()
endif()
