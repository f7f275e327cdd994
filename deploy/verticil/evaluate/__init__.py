"""Any synthetic table held against the real one, by whoever holds that.

>>> from verticil.evaluate import evaluate
>>> evaluate.__module__
'verticil.evaluate.evaluation'
"""

from verticil.evaluate.evaluation import Evaluation as Evaluation
from verticil.evaluate.evaluation import evaluate as evaluate
