"""Row changes as columns: drain, frame, type and fold received bytes without a Python row."""
