"""The study document: what is asked, of whom, with which noise; its digest and its states."""
