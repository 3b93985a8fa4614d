// The one place where fmt's own functions are compiled. Its header-only mode would compile the whole formatter again
// in every file that formats a text, which took two thirds of the build; Debian ships no static archive to link.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {
// The headers declare these two extern.
template FMT_API auto thousands_sep_impl<char>(locale_ref) -> thousands_sep_result<char>;
template FMT_API auto decimal_point_impl<char>(locale_ref) -> char;
}  // namespace detail
FMT_END_NAMESPACE
