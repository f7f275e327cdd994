"""What is known of all records before any data: which combinations cannot be, which column follows from others, how values group.

Kotal & Joshi's KIPPS (section 3) lets a knowledge graph guide a generator; here the same knowledge is a part of the study, in one
canonical form whether it was written as tables of the study or as a file in Turtle. It comes from outside the data, so using it
spends nothing; a rule that was found in private data would be a statement about them, and belongs in no study.
"""
