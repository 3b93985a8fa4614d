// The problems that every kernel list, kernel pack and compile test is made from.
#pragma once

#include <string>
#include <vector>

namespace support {

/// A layer of a public model as one device sees it, "k8 e160 h6144 i512" with ids of more experts where experts are
/// divided, and the activations and formats it is served with.
struct CorpusShape {
  std::string name;   ///< for messages, "glm-5.2 tp4"
  std::string sizes;  ///< words of the problem language without token count, format, dtype and activation
  std::vector<std::string> activations;  ///< "silu", "swiglu_oai bias", ...
};

/// The shapes. Never empty; the same at every call.
const std::vector<CorpusShape>& corpus_shapes();

/// Every shape with every weight format, dtype and each of its activations, as problem texts with a small, a medium and
/// a large token count. All parse and each occurs once. Together they use every format, dtype and activation.
std::vector<std::string> corpus_problems();

}  // namespace support
