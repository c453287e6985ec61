"""What several stages, or the long ones, are put together from: options become engines, graders, run folders."""
