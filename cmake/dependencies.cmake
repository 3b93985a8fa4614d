# Libraries for everything that is not the project's purpose. fmt (compiled in src/core/fmt_instances.cpp) and spdlog
# (in src/core/log.cpp) come as headers, the rest static.
find_package(nlohmann_json 3.11 REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
# The fuzz build compiles nothing that runs in parallel, and clang often comes without an OpenMP run-time library.
if(FOURFOLD_FUZZ)
  add_library(OpenMP::OpenMP_CXX INTERFACE IMPORTED)
  set(OpenMP_CXX_FLAGS "")
else()
  find_package(OpenMP REQUIRED COMPONENTS CXX)
endif()
find_package(Threads REQUIRED)
find_path(XXHASH_INCLUDE xxhash.h REQUIRED)
find_path(PCRE2_INCLUDE pcre2.h REQUIRED)
find_library(PCRE2_LIBRARY NAMES libpcre2-8.a REQUIRED)

add_library(fourfold_dependencies INTERFACE)
target_include_directories(fourfold_dependencies INTERFACE ${XXHASH_INCLUDE} ${PCRE2_INCLUDE}
  $<TARGET_PROPERTY:fmt::fmt,INTERFACE_INCLUDE_DIRECTORIES>
  $<TARGET_PROPERTY:spdlog::spdlog_header_only,INTERFACE_INCLUDE_DIRECTORIES>)
target_compile_definitions(fourfold_dependencies INTERFACE PCRE2_STATIC PCRE2_CODE_UNIT_WIDTH=8 SPDLOG_FMT_EXTERNAL)
target_link_libraries(fourfold_dependencies INTERFACE
  nlohmann_json::nlohmann_json CLI11::CLI11
  ${PCRE2_LIBRARY} Threads::Threads ${CMAKE_DL_LIBS})
target_compile_options(fourfold_dependencies INTERFACE ${OpenMP_CXX_FLAGS})

# A program built on one Linux must run on another: OpenMP's and the compiler's run-time libraries go in.
set(FOURFOLD_GOMP "")
if(FOURFOLD_STATIC AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT FOURFOLD_SANITIZE)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libgomp.a
                  OUTPUT_VARIABLE FOURFOLD_GOMP OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
if(FOURFOLD_GOMP AND EXISTS "${FOURFOLD_GOMP}")
  target_link_libraries(fourfold_dependencies INTERFACE ${FOURFOLD_GOMP})
  target_link_options(fourfold_dependencies INTERFACE -static-libgcc -static-libstdc++)
else()
  target_link_libraries(fourfold_dependencies INTERFACE OpenMP::OpenMP_CXX)
endif()
