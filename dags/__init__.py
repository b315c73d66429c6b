"""Airflow's schedules, made from the lake's file; no logic of their own."""
