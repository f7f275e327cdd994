import pandas as pd

from verticil.evaluate import evaluate

real = pd.DataFrame({"ward": ["a"] * 60 + ["b"] * 40, "sick": ["no"] * 80 + ["yes"] * 20})
found = evaluate(real, {"copy": real}, only=["likeliest"], target="sick")
print(found.metrics["likeliest"])
