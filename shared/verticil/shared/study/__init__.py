"""The study document: what is asked, of whom, with which noise; its digest, its lint and its states."""
