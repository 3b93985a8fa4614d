# One file per instruction set; the suffix of its name gives it its flags. Nothing else is compiled for more than
# the baseline, and these files include only intrinsics and plain structs (a test checks), so no inline function
# of a wider instruction set can be linked into common code.
set(FOURFOLD_FLAGS_avx2 -mavx2 -mfma -mf16c)
# gcc 12 warns inside its own AVX-512 header (GCC bug 105593).
set(FOURFOLD_FLAGS_avx512 ${FOURFOLD_FLAGS_avx2} -mavx512f -mavx512bw -mavx512vl -mavx512dq
    -Wno-uninitialized -Wno-maybe-uninitialized)
set(FOURFOLD_FLAGS_avx512_bf16 ${FOURFOLD_FLAGS_avx512} -mavx512bf16)
foreach(source ${FOURFOLD_SOURCES})
  if(source MATCHES "_(avx2|avx512|avx512_bf16)\\.cpp$")
    set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS ${FOURFOLD_FLAGS_${CMAKE_MATCH_1}})
  endif()
endforeach()

foreach(source ${FOURFOLD_SOURCES})
  if(source MATCHES "/src/(cpu|formats)/" AND NOT FOURFOLD_SANITIZE)
    set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS $<$<CONFIG:Release>:-O3>)
  endif()
endforeach()
