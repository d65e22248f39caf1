"""Names of the files in an exported folder."""

ONNX_FILE, INT8_FILE = "onnx/model.onnx", "onnx/model_quantized.onnx"
INDEX_FILE = "index.json"  # of a frontier
BUDGETS_FILE = "budgets.json"  # of an elastic file: its sub-networks
RUNTIMES_FILE = "runtimes.json"  # what the full model takes in each
