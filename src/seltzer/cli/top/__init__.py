"""`seltzer top`: a cluster live and full-screen."""
