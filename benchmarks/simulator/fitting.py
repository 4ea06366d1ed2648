"""Least squares with coefficients that cannot be negative, for a handful of unknowns."""

from collections.abc import Sequence

Row = tuple[Sequence[float], float]  # features, what was measured


def fit(rows: Sequence[Row]) -> list[float]:
    """The coefficients that make the relative errors smallest; those that would be negative are 0."""
    width = len(rows[0][0])
    active = list(range(width))
    while active:
        solution = _solve(rows, active)
        worst = min(range(len(active)), key=solution.__getitem__)
        if solution[worst] >= 0:
            found = dict(zip(active, solution, strict=True))
            return [found.get(index, 0.0) for index in range(width)]
        del active[worst]
    return [0.0] * width


def _solve(rows: Sequence[Row], active: Sequence[int]) -> list[float]:
    """Normal equations, by elimination with pivots."""
    size = len(active)
    scale = [max(abs(features[index]) for features, _ in rows) or 1.0 for index in active]
    matrix = [[0.0] * (size + 1) for _ in range(size)]
    for features, measured in rows:
        weighted = [features[index] / scale[place] / measured for place, index in enumerate(active)]
        for i in range(size):
            for j in range(size):
                matrix[i][j] += weighted[i] * weighted[j]
            matrix[i][size] += weighted[i]
    for column in range(size):
        pivot = max(range(column, size), key=lambda row: abs(matrix[row][column]))
        matrix[column], matrix[pivot] = matrix[pivot], matrix[column]
        if abs(matrix[column][column]) < 1e-12:
            raise ValueError("the measurements do not tell these coefficients apart")
        for row in range(size):
            if row != column:
                factor = matrix[row][column] / matrix[column][column]
                matrix[row] = [a - factor * b for a, b in zip(matrix[row], matrix[column], strict=True)]
    return [matrix[i][size] / matrix[i][i] / scale[i] for i in range(size)]
