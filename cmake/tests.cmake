# One test program per folder of tests/ that mirrors a folder of src/. Test data is found by FOURFOLD_SOURCE_DIR.
find_package(GTest REQUIRED)
include(GoogleTest)

file(GLOB FOURFOLD_TEST_SUPPORT CONFIGURE_DEPENDS tests/oracle/*.cpp tests/support/*.cpp
     tests/corpus/*.cpp)
add_library(fourfold_test_support STATIC ${FOURFOLD_TEST_SUPPORT} ${CMAKE_SOURCE_DIR}/tests/test_main.cpp)
# "kernels/params/..." from the root; within kernels/ names start there, as NVRTC sees them.
target_include_directories(fourfold_test_support PUBLIC tests src include . kernels)
target_link_libraries(fourfold_test_support PUBLIC GTest::gtest fourfold_core fourfold_dependencies)
target_compile_definitions(fourfold_test_support PUBLIC
  FOURFOLD_SOURCE_DIR="${CMAKE_SOURCE_DIR}" FOURFOLD_BINARY_DIR="${CMAKE_BINARY_DIR}")

# A CUDA driver that keeps records and runs nothing (tests/cuda/stand_in/stand_in.h), for machines without a GPU.
file(GLOB FOURFOLD_STAND_IN CONFIGURE_DEPENDS tests/cuda/stand_in/*.cpp)
add_library(fourfold_stand_in_cuda SHARED ${FOURFOLD_STAND_IN})
target_include_directories(fourfold_stand_in_cuda PRIVATE src include)

# Everything that needs a GPU, in one program that runs without this tree (docs/gpu_check.md). No test of ctest: there it
# would have no GPU.
file(GLOB FOURFOLD_GPU_TESTS CONFIGURE_DEPENDS tests/gpu/*.cpp)
add_executable(fourfold_gpu_tests ${FOURFOLD_GPU_TESTS})
target_link_libraries(fourfold_gpu_tests PRIVATE fourfold_test_support)
target_compile_options(fourfold_gpu_tests PRIVATE $<$<CONFIG:Release>:-O1>)
target_precompile_headers(fourfold_gpu_tests PRIVATE <gtest/gtest.h>)

foreach(area core formats plan backend moe cpu cuda benchmark model cli lint)
  file(GLOB sources CONFIGURE_DEPENDS tests/${area}/*_test.cpp tests/${area}/jit/*_test.cpp)
  if(sources)
    add_executable(test_${area} ${sources})
    target_link_libraries(test_${area} PRIVATE fourfold_test_support)
    target_compile_options(test_${area} PRIVATE $<$<CONFIG:Release>:-O1>)
    target_precompile_headers(test_${area} PRIVATE <gtest/gtest.h>)
    if(area STREQUAL "cli" AND TARGET fourfold)
      add_dependencies(test_${area} fourfold fourfold_stand_in_cuda)
    endif()
    if(area STREQUAL "lint")
      target_sources(test_lint PRIVATE tests/gpu/flush_memory.cpp tests/gpu/gpu_report.cpp
                     tests/gpu/planted_faults.cpp tests/gpu/residue_cases.cpp)
      add_dependencies(test_lint fourfold_gpu_tests)
    endif()
    if(area STREQUAL "cuda" OR area STREQUAL "benchmark")
      add_dependencies(test_${area} fourfold_stand_in_cuda)
      target_compile_definitions(test_${area} PRIVATE FOURFOLD_STAND_IN_CUDA="$<TARGET_FILE:fourfold_stand_in_cuda>")
    endif()
    gtest_discover_tests(test_${area} TEST_PREFIX ${area}. DISCOVERY_TIMEOUT 60
      # Tests run side by side: threads that spin at barriers would take each other's cores.
      PROPERTIES TIMEOUT 600 ENVIRONMENT "OMP_WAIT_POLICY=passive")
  endif()
endforeach()
