// The order in which a played launch runs its threads.
#pragma once

namespace support {

/// No result of a kernel may depend on it.
enum class ThreadOrder { ascending, descending };

}  // namespace support
