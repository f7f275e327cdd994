"""What an analyst drafts and checks before a study is proposed."""
