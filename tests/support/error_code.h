// What a refused call threw.
#pragma once

#include <gtest/gtest.h>

#include "fourfold/error.h"

namespace support {

/// The code of the fourfold::Error that `call` throws; throwing none fails the test and gives internal.
template <class Call>
fourfold::ErrorCode code_of(const Call& call) {
  try {
    call();
  } catch (const fourfold::Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return fourfold::ErrorCode::internal;
}

}  // namespace support
