"""One owner of a whole table: synthetic records with one bound for everything that is published.

>>> from verticil.curator import synthesize
>>> synthesize.__module__
'verticil.curator.synthesis'
"""

from verticil.curator.synthesis import Synthesized as Synthesized
from verticil.curator.synthesis import synthesize as synthesize
