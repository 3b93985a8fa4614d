// Every dtype has a name that reads back, and a width.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "fourfold/tensor.h"

namespace fourfold {
namespace {

TEST(DTypes, EveryNameReadsBackAndIsUnique) {
  std::set<std::string> names;
  for (int i = 0; i <= static_cast<int>(DType::f64); ++i) {
    const auto dtype = static_cast<DType>(i);
    const std::string name(dtype_name(dtype));
    EXPECT_EQ(dtype_from_name(name), dtype) << name;
    names.insert(name);
  }
  EXPECT_EQ(names.size(), 17u);
}

TEST(DTypes, WidthsAreThoseOfSafetensors) {
  EXPECT_EQ(dtype_bits(DType::f4_e2m1), 4);
  for (DType dtype : {DType::boolean, DType::u8, DType::i8, DType::f8_e4m3, DType::f8_e5m2, DType::f8_e8m0})
    EXPECT_EQ(dtype_bits(dtype), 8);
  for (DType dtype : {DType::i16, DType::u16, DType::f16, DType::bf16}) EXPECT_EQ(dtype_bits(dtype), 16);
  for (DType dtype : {DType::i32, DType::u32, DType::f32}) EXPECT_EQ(dtype_bits(dtype), 32);
  for (DType dtype : {DType::i64, DType::u64, DType::f64}) EXPECT_EQ(dtype_bits(dtype), 64);
}

TEST(DTypes, UnknownNamesAreNone) {
  for (const char* name : {"", "bf16", "Q4_X", "F32 ", "F8"}) EXPECT_FALSE(dtype_from_name(name).has_value()) << name;
}

}  // namespace
}  // namespace fourfold
