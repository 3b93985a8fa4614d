// Integer types of known width. Kernels include no system header, and host and device must agree on every struct.
#pragma once

namespace fourfold::kernels {

using UInt8 = unsigned char;
using UInt16 = unsigned short;
using UInt32 = unsigned int;
using UInt64 = unsigned long;  // as Int64
using Int32 = int;
using Int64 = long;  // what std::int64_t is on 64-bit Linux, so that host pointers need no cast

static_assert(sizeof(UInt16) == 2 && sizeof(Int32) == 4 && sizeof(UInt32) == 4, "widths of the LP64 data model");
static_assert(sizeof(Int64) == 8 && sizeof(UInt64) == 8 && sizeof(void*) == 8, "widths of the LP64 data model");

}  // namespace fourfold::kernels
