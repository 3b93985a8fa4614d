// Sizes are those of the models' public configurations; TP4 divides the intermediate by four, EP the experts.
#include "corpus/corpus.h"

namespace support {

const std::vector<CorpusShape>& corpus_shapes() {
  static const std::vector<CorpusShape> shapes{
      {"glm-5.2 tp4", "k8 e160 h6144 i512", {"silu", "situ"}},
      {"glm-5.2 ep8", "k8 e20 eg160 h6144 i2048", {"silu", "silu on_input"}},
      {"qwen3-30b-a3b", "k8 e128 h2048 i768", {"silu", "gelu_tanh"}},
      {"qwen3-235b-a22b", "k8 e128 h4096 i1536", {"silu"}},
      {"gpt-oss-120b", "k4 e128 h2880 i2880", {"swiglu_oai bias"}},
      {"gpt-oss-20b", "k4 e32 h2880 i2880", {"swiglu_oai bias"}},
      {"relu2 without a gate", "k6 e128 h2688 i1856", {"relu2"}},
      {"many small experts", "k22 e512 h1024 i2688", {"silu", "relu2"}},
      {"deepseek-v3", "k8 e256 h7168 i2048", {"silu", "silu limit=7"}},
      {"moe-13m", "k4 e24 h256 i96", {"silu"}},
  };
  return shapes;
}

std::vector<std::string> corpus_problems() {
  std::vector<std::string> problems;
  for (const CorpusShape& shape : corpus_shapes())
    for (const char* format : {"nvfp4", "mxfp4", "int4 g32", "int4 g128", "int4 g128 zp", "int4 grow zp"})
      for (const char* dtype : {"bf16", "f16"})
        for (const std::string& activation : shape.activations)
          problems.push_back("t1,64,3072 " + shape.sizes + " " + format + " " + dtype + " " + activation);
  return problems;
}

}  // namespace support
